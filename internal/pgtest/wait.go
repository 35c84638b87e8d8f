package pgtest

import (
	"context"
	"testing"
	"time"
)

const (
	// pollEvery is how long poll pauses. It costs the tests that wait a
	// millisecond, and the database next to nothing.
	pollEvery = time.Millisecond

	// waitTimeout is how long a test waits before it fails. What tests wait for
	// comes within milliseconds, or never.
	waitTimeout = 30 * time.Second
)

// poll asks until the answer is yes, or the context is over. It is the only
// place where this package lets time pass.
func poll(ctx context.Context, done func() bool) bool {
	pause := time.NewTicker(pollEvery)
	defer pause.Stop()
	for {
		if done() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-pause.C:
		}
	}
}

// Until waits until done says yes, and fails the test if it never does.
func Until(t testing.TB, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	if !poll(ctx, done) {
		t.Fatalf("waited %s, and still not: %s", waitTimeout, what)
	}
}
