package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// lostDecisions: whoever decides is told what became of it, however often the
// database's answer is lost.
var lostDecisions = []story{
	{"a decision that took effect is one decision", func(w *world) {
		for key, resolution := range map[string]store.Resolution{"completed": asCompleted("found"), "released": asNotExecuted} {
			_, seen := w.unknown(key)
			f := w.forgets()
			var first *store.Record
			f.lose, f.then = 2, func() error { first = w.record(key); return nil }

			require.NoError(w, w.store.Resolve(w.Context(), seen, resolution), key)

			w.unchanged(first, w.record(key), key)
			require.Len(w, w.audit(identity(key)), 1, key)
			w.store = store.New(w.engine)
		}
	}},

	{"a release by decision does not touch who came after it", func(w *world) {
		_, seen := w.unknown("K1")
		f := w.forgets()
		f.lose, f.then = 1, func() error {
			_, _, err := w.engine.Claim(w.Context(), draft("K1", otherToken))
			return err
		}

		require.NoError(w, w.store.Resolve(w.Context(), seen, asNotExecuted), "the decision was made")

		require.Equal(w, otherToken, w.record("K1").Token)
		require.Len(w, w.audit(identity("K1")), 1)
	}},

	{"a completion by decision that time has ended meanwhile is a success", func(w *world) {
		_, seen := w.unknown("K1")
		resolution := asCompleted("found")
		resolution.Completion.ReplayFor, resolution.Completion.KeepFor = over, time.Millisecond
		f := w.forgets()
		f.lose, f.then = 1, func() error {
			w.moves(1, w.engine.Expire, all)
			w.moves(1, w.engine.Purge, all)
			return nil
		}

		require.NoError(w, w.store.Resolve(w.Context(), seen, resolution))

		require.Nil(w, w.record("K1"))
		require.Len(w, w.audit(identity("K1")), 1)
	}},

	{"a decision that was overtaken is not taken for one that took effect", func(w *world) {
		for name, first := range map[string]store.Resolution{"completed": asCompleted("first"), "released": asNotExecuted} {
			for _, second := range []store.Resolution{asCompleted("second"), asNotExecuted} {
				key := name + " then completed"
				if second.Completion == nil {
					key = name + " then released"
				}
				_, seen := w.unknown(key)
				require.NoError(w, w.store.Resolve(w.Context(), seen, first))
				before := w.record(key)
				f := w.forgets()
				f.lose = 1 // no answer is lost: the call has failed

				var overtaken *store.OvertakenError
				require.ErrorAs(w, w.store.Resolve(w.Context(), seen, second), &overtaken, key)

				w.unchanged(before, overtaken.Record, key)
				require.Len(w, w.audit(identity(key)), 1, key)
				w.store = store.New(w.engine)
			}
		}
	}},

	{"a decision that nobody acknowledges is reported", func(w *world) {
		_, seen := w.unknown("K1")
		f := w.forgets()
		f.lose = always

		err := w.store.Resolve(w.Context(), seen, asCompleted("found"))

		require.ErrorIs(w, err, errNoAnswer)
		require.Equal(w, store.Completed, w.state("K1"))
		require.Len(w, w.audit(identity("K1")), 1, "and is one decision all the same")
	}},

	{"a claim that was lost and completed by hand meanwhile cannot be released unheard", func(w *world) {
		f := w.forgets()
		claim := w.winsFor("K1", over)
		f.lose, f.then = 1, func() error { return nil }
		w.moves(1, w.engine.Abandon, all)
		require.NoError(w, store.New(w.engine).Resolve(w.Context(), w.record("K1"), asCompleted("found")))

		var lost *store.ClaimLostError
		require.ErrorAs(w, claim.Release(w.Context()), &lost)
		require.Equal(w, store.Completed, lost.Record.State)
	}},

	{"a claim that never took effect may be released whatever became of the key", func(w *world) {
		w.store = store.New(refusingClaims{w.engine})
		_, _, err := w.store.Claim(w.Context(), identity("K1"), fingerprint("K1"), "", ample)
		var unproved *store.UnprovedClaimError
		require.ErrorAs(w, err, &unproved)
		w.store = store.New(w.engine)
		w.completes(w.wins("K1"), created("another's"))

		require.NoError(w, unproved.Release(w.Context()))

		require.Equal(w, store.Completed, w.state("K1"))
	}},

	{"a claim for a business identity is found again by its token", func(w *world) {
		f := w.forgets()
		f.lose = 2

		w.completes(w.winsNatural(identity("K1"), "R-1"), created("{}"))

		w.isTaken(identity("K2"), "R-1", identity("K1"))
		require.Equal(w, store.Completed, w.state("K1"))
	}},

	{"who lost a business identity is told so, also if the answer was lost", func(w *world) {
		w.winsNatural(identity("K1"), "R-1")
		f := w.forgets()
		f.lose = 1

		w.isTaken(identity("K2"), "R-1", identity("K1"))
	}},
}
