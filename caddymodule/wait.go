package caddymodule

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// DefaultWait of a route.
const DefaultWait = 5 * time.Second

// The poll for what another instance is executing, which begins soon and slows
// down. Requests of this instance are signalled and need no poll.
const (
	pollFirst = 100 * time.Millisecond
	pollLast  = 2 * time.Second
)

// waits tells the requests of this process when another one of them is settled.
type waits struct {
	mu      sync.Mutex
	running map[store.Identity]chan struct{}
}

// executing notes that the identity's request is being executed here, until the
// returned function is called; it may be called more than once.
func (w *waits) executing(id store.Identity) (settled func()) {
	done := make(chan struct{})
	w.mu.Lock()
	if w.running == nil {
		w.running = make(map[store.Identity]chan struct{})
	}
	w.running[id] = done
	w.mu.Unlock()

	return sync.OnceFunc(func() {
		w.mu.Lock()
		// Released and claimed again, the identity may be another request's by now.
		if w.running[id] == done {
			delete(w.running, id)
		}
		w.mu.Unlock()
		close(done)
	})
}

// watch returns a channel that is closed when the identity is settled; nil if it
// is not being executed here.
func (w *waits) watch(id store.Identity) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running[id]
}

// wait is one request's patience. It holds no connection.
type wait struct {
	until  time.Time
	poll   time.Duration
	looked bool // a record of another instance has been read again at once
	waited bool
}

func (h *Handler) newWait() *wait {
	return &wait{until: time.Now().Add(time.Duration(h.Wait)), poll: pollFirst}
}

type waitResult int

const (
	waitAgain waitResult = iota // read the record again
	waitOver
	waitClientGone
)

// next waits until it is worth reading the record again.
func (w *wait) next(ctx context.Context, settled <-chan struct{}) waitResult {
	left := time.Until(w.until)
	if left <= 0 {
		return waitOver
	}
	w.waited = true
	pause := left
	if settled == nil {
		// Not executed here, or no longer: in that case the record has been settled
		// since it was read, and reading it at once is enough.
		if !w.looked {
			w.looked = true
			return waitAgain
		}
		pause = min(left, w.poll/2+rand.N(w.poll))
		w.poll = min(w.poll*2, pollLast)
	} else {
		w.looked = false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-settled:
		return waitAgain
	case <-timer.C:
		return waitAgain // once more at the very end, too
	case <-ctx.Done():
		return waitClientGone
	}
}
