package service

import "context"

// gate is where held requests wait, so that a test says when they go on instead of how long they take.
type gate struct {
	watched
	held []chan struct{} // oldest first; closed on release
}

// hold returns when the request is released, or with an error when the service dies.
func (g *gate) hold(alive context.Context) error {
	released := make(chan struct{})
	g.Lock()
	g.held = append(g.held, released)
	g.changed()
	g.Unlock()

	select {
	case <-released:
		return nil
	case <-alive.Done():
		return alive.Err()
	}
}

func (g *gate) release(n int) int {
	g.Lock()
	defer g.Unlock()
	if n <= 0 || n > len(g.held) {
		n = len(g.held)
	}
	for _, released := range g.held[:n] {
		close(released)
	}
	g.held = g.held[n:]
	g.changed()
	return n
}

func (g *gate) count() int {
	g.Lock()
	defer g.Unlock()
	return len(g.held)
}
