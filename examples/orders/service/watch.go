package service

import (
	"context"
	"sync"
)

// watched is a lock around something that others wait to see change, so that nobody has to sleep and look again.
type watched struct {
	sync.Mutex
	next chan struct{} // closed at the next change; nil while nobody waits
}

// changed wakes everyone who waits. The lock is held.
func (w *watched) changed() {
	if w.next != nil {
		close(w.next)
		w.next = nil
	}
}

// wait returns when the condition holds, which is asked with the lock held, or with the context's error.
func (w *watched) wait(ctx context.Context, condition func() bool) error {
	for {
		w.Lock()
		if condition() {
			w.Unlock()
			return nil
		}
		if w.next == nil {
			w.next = make(chan struct{})
		}
		next := w.next
		w.Unlock()

		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
