package storetest

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

var operation = []story{
	{"records survive a restart", func(w *world) {
		w.completes(w.wins("completed"), created("{}"))
		claim := w.wins("executing")
		require.NoError(w, w.wins("unknown").MarkUnknown(w.Context(), store.Doubt{Status: 500, Reason: "timeout"}))
		before := map[string]*store.Record{}
		for _, key := range []string{"completed", "executing", "unknown"} {
			before[key] = w.record(key)
		}
		require.NoError(w, w.store.Close())

		w.engine = w.start()
		w.store = store.New(w.engine)

		for key, record := range before {
			w.unchanged(record, w.loses(key), key)
		}
		require.NotNil(w, claim)
		require.NoError(w, w.engine.Complete(w.Context(), identity("executing"), before["executing"].Token, created("{}")),
			"a token outlives the process that made it")
	}},

	{"instances see each other's records at once", func(w *world) {
		other := store.New(w.another())
		claim := w.wins("K1")

		_, held, err := other.Claim(w.Context(), identity("K1"), fingerprint("K1"), "", ample)
		require.NoError(w, err)
		require.Equal(w, store.Executing, held.State)

		w.completes(claim, created("{}"))
		held, err = other.Read(w.Context(), identity("K1"))
		require.NoError(w, err)
		require.Equal(w, store.Completed, held.State)
		w.unchanged(w.record("K1"), held, "both read the same")
	}},

	{"what is counted is what is there", func(w *world) {
		require.Equal(w, map[store.State]int64{store.Executing: 0, store.Unknown: 0, store.Completed: 0, store.Expired: 0},
			w.counts(), "every state is counted, also where nothing is")

		w.wins("executing 1")
		w.wins("executing 2")
		w.winsFor("executing 3", over) // for as long as nobody sweeps
		require.NoError(w, w.wins("unknown").MarkUnknown(w.Context(), store.Doubt{}))
		w.completes(w.wins("completed 1"), created("{}"))
		w.completes(w.wins("completed 2"), created("{}"))
		expired := created("{}")
		expired.ReplayFor = over
		w.completes(w.wins("expired"), expired)
		w.moves(1, w.store.Expire, all)
		require.NoError(w, w.wins("released").Release(w.Context()))

		require.Equal(w, map[store.State]int64{store.Executing: 3, store.Unknown: 1, store.Completed: 2, store.Expired: 1}, w.counts())
		w.moves(1, w.store.Abandon, all)
		require.Equal(w, map[store.State]int64{store.Executing: 2, store.Unknown: 2, store.Completed: 2, store.Expired: 1}, w.counts())
	}},

	{"the oldest unknown outcome has an age until it is resolved", func(w *world) {
		claim := w.wins("K1")
		require.Zero(w, w.stats().OldestUnknown)
		require.NoError(w, claim.MarkUnknown(w.Context(), store.Doubt{}))

		w.until("it has an age", func() bool { return w.stats().OldestUnknown > 0 })
		require.Less(w, w.stats().OldestUnknown, patience)
		age := w.stats().OldestUnknown
		w.until("it grows older", func() bool { return w.stats().OldestUnknown > age })

		w.completes(claim, created("{}"))
		require.Zero(w, w.stats().OldestUnknown)
	}},

	{"a call whose time is up fails and changes nothing", func(w *world) {
		claim := w.wins("K1")
		before := w.record("K1")
		unknown := w.unknownOf(draft("unknown", rightToken))
		ctx, cancel := context.WithCancel(w.Context())
		cancel()

		for name, call := range map[string]func() error{
			"claim":        func() error { _, _, err := w.engine.Claim(ctx, draft("K2", rightToken)); return err },
			"read":         func() error { _, err := w.engine.Read(ctx, identity("K1")); return err },
			"complete":     func() error { return claim.Complete(ctx, created("{}")) },
			"mark unknown": func() error { return claim.MarkUnknown(ctx, store.Doubt{}) },
			"release":      func() error { return claim.Release(ctx) },
			"abandon":      func() error { _, err := w.engine.Abandon(ctx, all); return err },
			"expire":       func() error { _, err := w.engine.Expire(ctx, all); return err },
			"purge":        func() error { _, err := w.engine.Purge(ctx, all); return err },
			"purge quotas": func() error { _, err := w.engine.PurgeQuotas(ctx, all); return err },
			"stats":        func() error { _, err := w.engine.Stats(ctx); return err },
			"resolve": func() error {
				return w.engine.Resolve(ctx, identity("unknown"), rightToken, decisionToken, asNotExecuted)
			},
			"take": func() error {
				_, err := w.engine.TakeUnknown(ctx, []string{identity("").Operation}, ample, all)
				return err
			},
			"probe":   func() error { return w.engine.TakeForProbe(ctx, identity("unknown"), rightToken, ample) },
			"put off": func() error { return w.engine.PutOff(ctx, identity("unknown"), rightToken, -1) },
			"list":    func() error { _, err := w.engine.List(ctx, store.Filter{State: store.Unknown, Limit: all}); return err },
			"audit":   func() error { _, err := w.engine.Audit(ctx, identity("unknown")); return err },
		} {
			var failed *store.EngineError
			require.ErrorAs(w, call(), &failed, name)
			require.ErrorIs(w, failed, context.Canceled, name)
			require.Equal(w, store.Unavailable, failed.Failure, name)
		}

		w.unchanged(before, w.record("K1"), "none took effect")
		w.unchanged(unknown, w.record("unknown"), "none took effect")
		require.Nil(w, w.record("K2"))
	}},
}

func (w *world) stats() store.Stats {
	w.Helper()
	stats, err := w.store.Stats(w.Context())
	require.NoError(w, err)
	return stats
}

func (w *world) counts() map[store.State]int64 {
	w.Helper()
	return w.stats().Records
}
