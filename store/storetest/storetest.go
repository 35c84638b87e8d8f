// Package storetest is what every engine must do: one conformance suite, told
// as stories, each over an empty database of its own.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Backend{
//			Create: func(t testing.TB) func() store.Engine { … },
//			Shared: true,
//		})
//	}
//
// Nothing in it sleeps. What time does is shown with leases and windows that are
// over from the start, so an engine must take durations below zero; where time
// has to pass, the story asks the store until it says so.
package storetest

import (
	"testing"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// Backend is an engine to be tested.
type Backend struct {
	// Create makes an empty database, to be removed at the end of the test, and
	// returns how to open an engine on it. The suite closes what it opens, before
	// that end.
	Create func(t testing.TB) (open func() store.Engine)

	// Shared says that several engines may have one database open at a time.
	// Where not, one serves all callers of a story.
	Shared bool
}

// story is one behaviour: its name says what is true, its body shows it.
type story struct {
	name string
	tell func(w *world)
}

// Run tells every story to the backend.
func Run(t *testing.T, backend Backend) {
	for _, chapter := range []struct {
		name    string
		stories []story
	}{
		{"claim", claims},
		{"answer", answers},
		{"transition", transitions()},
		{"passing time", passingTime},
		{"lost acknowledgement", lostAcknowledgements},
		{"way out", waysOut},
		{"lost decision", lostDecisions},
		{"verification", verification},
		{"natural key", naturalKeys},
		{"quota", quotas},
		{"listing", listing},
		{"setting", settings},
		{"contention", contention},
		{"operation", operation},
	} {
		t.Run(chapter.name, func(t *testing.T) {
			for _, story := range chapter.stories {
				t.Run(story.name, func(t *testing.T) { story.tell(newWorld(t, backend)) })
			}
		})
	}
}
