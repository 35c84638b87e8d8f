package caddymodule

import (
	"slices"
	"time"

	"go.uber.org/zap"
)

// Several configurations can share one backend: during a reload the new one has
// started, and the former one is still there. Which of them stays is not known
// yet, since the new one may fail to start after this app did. So the eldest is in
// force until Caddy has cleaned it up: a configuration that was refused has never
// verified an outcome, and leaves no trace.

// join adds a configuration that has started.
func (b *backend) join(a *App) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live = append(b.live, a)
	b.apply()
}

// leave takes a configuration out that Caddy cleans up.
func (b *backend) leave(a *App) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live = slices.DeleteFunc(b.live, func(other *App) bool { return other == a })
	b.apply()
}

// apply brings the eldest configuration into force; the lock is held. The last one
// stays when it has left, as its requests may still be in flight.
func (b *backend) apply() {
	if len(b.live) == 0 {
		return
	}
	eldest := b.live[0]
	b.sweep.Store(int64(time.Duration(eldest.SweepEvery)))
	b.verifiers.Store(&eldest.verifiers)

	// The eldest's first key seals, and the keys of all open: what one of them has
	// sealed, the others can replay.
	b.keys = nil
	known := make(map[string]bool)
	for _, app := range b.live {
		for _, key := range app.keys {
			if !known[key.ID] {
				known[key.ID] = true
				b.keys = append(b.keys, key)
			}
		}
	}
	b.seal()
}

// seal hands the keys to the engine, if it is open already; the lock is held.
func (b *backend) seal() {
	if b.sealed == nil {
		return
	}
	if err := b.sealed.SetKeys(b.keys); err != nil { // they were checked when they were provisioned
		backendLog().Error("setting encryption keys", zap.Error(err))
	}
}
