package storetest

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// asNotExecuted is what an operator says who has found nothing.
var asNotExecuted = store.Resolution{By: "olivia", Reason: "no such order in the books — 0 %"}

// asCompleted is what one says who has found the business object.
func asCompleted(body string) store.Resolution {
	completion := created(body)
	return store.Resolution{Completion: &completion, By: "olivia", Reason: "found by hand"}
}

var waysOut = []story{
	{"what was found by hand is replayed like any other answer", func(w *world) {
		_, seen := w.unknown("K1")

		require.NoError(w, w.store.Resolve(w.Context(), seen, asCompleted("found")))

		held := w.loses("K1")
		require.Equal(w, store.Completed, held.State)
		require.Equal(w, http.StatusCreated, held.Status)
		require.Equal(w, "/orders/1", held.Resource)
		require.Equal(w, created("found").Response, held.Response)
		require.Empty(w, held.Reason)
		require.NotEqual(w, seen.Token, held.Token, "a token of nobody's")
		require.Equal(w, seen.ClaimedAt, held.ClaimedAt)
		require.False(w, held.SettledAt.Before(seen.SettledAt))
		require.WithinDuration(w, held.SettledAt.Add(ample), held.ReplayUntil, 2*time.Millisecond)
		w.moves(0, w.store.Abandon, all)
		w.moves(0, w.store.Expire, all)
	}},

	{"what was found by hand expires and is purged like any other answer", func(w *world) {
		w.winsFor("K1", over)
		w.moves(1, w.store.Abandon, all)
		resolution := asCompleted("found")
		resolution.Completion.ReplayFor, resolution.Completion.KeepFor = over, time.Millisecond
		require.NoError(w, w.store.Resolve(w.Context(), w.record("K1"), resolution))

		w.moves(1, w.store.Expire, all)
		require.Equal(w, store.Expired, w.loses("K1").State)
		w.moves(1, w.store.Purge, all)

		require.Nil(w, w.record("K1"))
		require.Len(w, w.audit(identity("K1")), 1, "the decision outlives the record")
	}},

	{"an object that was found need not have a response", func(w *world) {
		_, seen := w.unknown("K1")
		resolution := asCompleted("")
		resolution.Completion.Response, resolution.Completion.Resource = nil, ""

		require.NoError(w, w.store.Resolve(w.Context(), seen, resolution))

		require.Nil(w, w.loses("K1").Response)
		require.Empty(w, w.loses("K1").Resource)
	}},

	{"what was not executed may be claimed afresh", func(w *world) {
		old, seen := w.unknown("K1")

		require.NoError(w, w.store.Resolve(w.Context(), seen, asNotExecuted))

		require.Nil(w, w.record("K1"))
		var lost *store.ClaimLostError
		require.ErrorAs(w, old.Complete(w.Context(), created("late")), &lost)
		require.Nil(w, lost.Record)
		w.wins("K1")
		fresh := w.record("K1")
		require.ErrorAs(w, old.Complete(w.Context(), created("late")), &lost)
		w.unchanged(fresh, lost.Record, "the old claimant is told who came after it")
		w.unchanged(fresh, w.record("K1"), "and does nothing to it")
	}},

	{"the claimant of a record that was resolved is told", func(w *world) {
		claim, seen := w.unknown("K1")
		require.NoError(w, w.store.Resolve(w.Context(), seen, asCompleted("found")))
		before := w.record("K1")

		for name, settle := range map[string]func() error{
			"complete":     func() error { return claim.Complete(w.Context(), created("late")) },
			"mark unknown": func() error { return claim.MarkUnknown(w.Context(), store.Doubt{Reason: "late"}) },
			"release":      func() error { return claim.Release(w.Context()) },
		} {
			var lost *store.ClaimLostError
			require.ErrorAs(w, settle(), &lost, name)
			w.unchanged(before, lost.Record, name)
		}

		w.unchanged(before, w.record("K1"), "what was decided stands")
	}},

	{"who decides after somebody else is told what is there", func(w *world) {
		for name, first := range map[string]struct {
			settle func(*store.Claim, *store.Record) error
			state  store.State
		}{
			"late completion": {func(c *store.Claim, _ *store.Record) error { return c.Complete(w.Context(), created("late")) }, store.Completed},
			"late release":    {func(c *store.Claim, _ *store.Record) error { return c.Release(w.Context()) }, nothing},
			"resolve completed": {func(_ *store.Claim, r *store.Record) error {
				return w.store.Resolve(w.Context(), r, asCompleted("found"))
			}, store.Completed},
			"resolve released": {func(_ *store.Claim, r *store.Record) error { return w.store.Resolve(w.Context(), r, asNotExecuted) }, nothing},
		} {
			claim, seen := w.unknown(name)
			require.NoError(w, first.settle(claim, seen), name)
			before, decisions := w.record(name), w.audit(identity(name))

			for _, second := range []store.Resolution{asCompleted("second"), asNotExecuted} {
				var overtaken *store.OvertakenError
				require.ErrorAs(w, w.store.Resolve(w.Context(), seen, second), &overtaken, name)
				w.unchanged(before, overtaken.Record, name)
			}

			require.Equal(w, first.state, w.state(name), name)
			w.unchanged(before, w.record(name), name)
			require.Equal(w, decisions, w.audit(identity(name)), name)
		}
	}},

	{"a decision about a record of the past does nothing to that of the present", func(w *world) {
		claim, seen := w.unknown("K1")
		require.NoError(w, claim.Release(w.Context()))
		_, present := w.unknown("K1")

		for _, resolution := range []store.Resolution{asCompleted("found"), asNotExecuted} {
			var overtaken *store.OvertakenError
			require.ErrorAs(w, w.store.Resolve(w.Context(), seen, resolution), &overtaken)
			w.unchanged(present, overtaken.Record, "what is there now")
		}
		w.unchanged(present, w.record("K1"), "as it was")
	}},

	{"the audit says who decided what, when and why, in order", func(w *world) {
		began := w.databaseTime()
		_, seen := w.unknown("K1")
		require.NoError(w, w.store.Resolve(w.Context(), seen, asNotExecuted))
		_, seen = w.unknown("K1")
		require.NoError(w, w.store.Resolve(w.Context(), seen, asNotExecuted))
		_, seen = w.unknown("K1")
		require.NoError(w, w.store.Resolve(w.Context(), seen, asCompleted("found")))
		ended := w.databaseTime()

		entries := w.audit(identity("K1"))

		last := began
		for i := range entries {
			require.False(w, entries[i].At.Before(last))
			last, entries[i].At = entries[i].At, time.Time{}
		}
		require.False(w, last.After(ended))
		released := store.AuditEntry{Identity: identity("K1"), By: asNotExecuted.By, From: store.Unknown, Reason: asNotExecuted.Reason}
		require.Equal(w, []store.AuditEntry{released, released, {
			Identity: identity("K1"), By: "olivia", From: store.Unknown, To: store.Completed,
			Status: http.StatusCreated, Reason: "found by hand",
		}}, entries)
		other := identity("K1")
		other.Actor = "bob"
		require.Empty(w, w.audit(other), "of another scope")
	}},

	{"of all who know better at once exactly one counts, and the audit says the same", func(w *world) {
		const rounds = 100
		other := store.New(w.another())
		for round := range rounds {
			key := keyOf(round)
			claim, seen := w.unknown(key)
			var errs [3]error
			var start, done sync.WaitGroup
			start.Add(1)
			for n, settle := range []func() error{
				func() error { return claim.Complete(w.Context(), created("late")) },
				func() error { return w.store.Resolve(w.Context(), seen, asCompleted("found")) },
				func() error { return other.Resolve(w.Context(), seen, asNotExecuted) },
			} {
				done.Go(func() { start.Wait(); errs[n] = settle() })
			}
			start.Done()
			done.Wait()

			w.oneCounts(key, errs[0], errs[1], errs[2])
		}
	}},

	{"of many who decide the same at once exactly one counts", func(w *world) {
		const deciders = 8
		stores := []*store.Store{w.store, store.New(w.another())}
		for _, resolution := range []store.Resolution{asCompleted("found"), asNotExecuted} {
			key := "completed"
			if resolution.Completion == nil {
				key = "released"
			}
			_, seen := w.unknown(key)
			errs := make([]error, deciders)
			var done sync.WaitGroup
			for n := range deciders {
				done.Go(func() { errs[n] = stores[n%2].Resolve(w.Context(), seen, resolution) })
			}
			done.Wait()

			counted := 0
			for _, err := range errs {
				var overtaken *store.OvertakenError
				if err == nil {
					counted++
				} else {
					require.ErrorAs(w, err, &overtaken)
				}
			}
			require.Equal(w, 1, counted, key)
			require.Len(w, w.audit(identity(key)), 1, key)
		}
	}},
}

// oneCounts requires that one of the three got what they wanted, that the others
// were told so, and that record and audit agree with it.
func (w *world) oneCounts(key string, completed, resolved, released error) {
	w.Helper()
	record, entries := w.record(key), w.audit(identity(key))
	var lost *store.ClaimLostError
	var overtaken *store.OvertakenError
	told := func(errs ...error) {
		w.Helper()
		for _, err := range errs {
			require.True(w, errors.As(err, &lost) || errors.As(err, &overtaken), "%s: %v", key, err)
		}
	}
	switch {
	case completed == nil:
		told(resolved, released)
		require.Equal(w, "late", string(record.Response.Body), key)
		require.Empty(w, entries, key)
	case resolved == nil:
		told(completed, released)
		require.Equal(w, "found", string(record.Response.Body), key)
		require.Len(w, entries, 1, key)
		require.Equal(w, store.Completed, entries[0].To, key)
	default:
		require.NoError(w, released, key)
		told(completed, resolved)
		require.Nil(w, record, key)
		require.Len(w, entries, 1, key)
		require.Equal(w, nothing, entries[0].To, key)
	}
}

func (w *world) audit(id store.Identity) []store.AuditEntry {
	w.Helper()
	entries, err := w.store.Audit(w.Context(), id)
	require.NoError(w, err)
	return entries
}

// databaseTime asks the database's clock, by a record that is in nobody's way.
func (w *world) databaseTime() time.Time {
	w.Helper()
	if w.record("clock") == nil {
		w.wins("clock")
	}
	return w.record("clock").Now
}
