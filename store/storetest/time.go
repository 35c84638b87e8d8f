package storetest

import (
	"fmt"
	"net/http"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

var passingTime = []story{
	{"a lease that is over leaves an unknown outcome", func(w *world) {
		w.winsFor("dead", over)
		w.wins("alive")

		w.moves(1, w.store.Abandon, all)

		require.Equal(w, map[string]store.State{"dead": store.Unknown, "alive": store.Executing}, w.states("dead", "alive"))
		record := w.record("dead")
		require.NotEmpty(w, record.Reason, "an operator is told why")
		require.NotZero(w, record.SettledAt)
	}},

	{"an answer that comes after the lease is recorded, swept or not", func(w *world) {
		swept, unswept := w.winsFor("swept", over), w.winsFor("unswept", over)
		require.NoError(w, unswept.Complete(w.Context(), created("late")))

		w.moves(1, w.store.Abandon, all)
		require.NoError(w, swept.Complete(w.Context(), created("late")))

		for _, key := range []string{"swept", "unswept"} {
			held := w.loses(key)
			require.Equal(w, store.Completed, held.State, key)
			require.Equal(w, "late", string(held.Response.Body), key)
			require.Empty(w, held.Reason, key)
		}
		w.moves(0, w.store.Abandon, all)
	}},

	{"an answer that comes late expires like any other", func(w *world) {
		for _, key := range []string{"swept", "unswept"} {
			claim := w.winsFor(key, over)
			if key == "swept" {
				w.moves(1, w.store.Abandon, all)
			}
			completion := created("late")
			completion.ReplayFor = over / 2 // after the lease was over
			w.completes(claim, completion)
			w.moves(0, w.store.Abandon, all)
			w.moves(1, w.store.Expire, all)
			require.Equal(w, store.Expired, w.state(key), key)
		}
	}},

	{"time never moves an unknown outcome", func(w *world) {
		require.NoError(w, w.winsFor("marked", over).MarkUnknown(w.Context(), store.Doubt{Reason: "timeout"}))
		w.winsFor("abandoned", over)
		w.moves(1, w.store.Abandon, all)

		for range 2 {
			for _, sweep := range []sweep{w.store.Abandon, w.store.Expire, w.store.Purge} {
				w.moves(0, sweep, all)
			}
		}

		require.Equal(w, store.Unknown, w.loses("marked").State)
		require.Equal(w, store.Unknown, w.loses("abandoned").State)
	}},

	{"what expires leaves a tombstone", func(w *world) {
		completion := created("{}")
		completion.ReplayFor = over
		w.completes(w.wins("K1"), completion)
		unswept := w.loses("K1")
		require.Equal(w, store.Expired, unswept.State, "the window is over, whether or not the sweeper came by")
		require.Nil(w, unswept.Response)

		w.moves(1, w.store.Expire, all)

		tombstone := w.loses("K1")
		w.unchanged(unswept, tombstone, "the sweep clears what could not be seen any more")
		require.Equal(w, fingerprint("K1"), tombstone.Fingerprint)
		require.Equal(w, http.StatusCreated, tombstone.Status)
		require.Equal(w, "/orders/1", tombstone.Resource)
		w.moves(0, w.store.Expire, all)
	}},

	{"a window ends by itself", func(w *world) {
		completion := created("{}")
		completion.ReplayFor = 200 * time.Millisecond
		w.completes(w.wins("K1"), completion)
		w.until("the window is over", func() bool {
			record := w.record("K1")
			require.Equal(w, record.Now.Before(record.ReplayUntil), record.State == store.Completed, "the state follows the database's clock")
			require.Equal(w, record.State == store.Completed, record.Response != nil)
			return record.State == store.Expired
		})
	}},

	{"a window that lasts is not swept", func(w *world) {
		w.completes(w.wins("K1"), created("{}"))
		w.moves(0, w.store.Expire, all)
		require.Equal(w, store.Completed, w.loses("K1").State)
	}},

	{"a tombstone is kept for ever unless its route says for how long", func(w *world) {
		for key, keep := range map[string]time.Duration{"for ever": 0, "for long": 2 * ample, "no longer": time.Millisecond} {
			completion := created(key)
			completion.ReplayFor, completion.KeepFor = over, keep
			w.completes(w.wins(key), completion)
		}
		w.moves(0, w.store.Purge, all) // none is a tombstone yet
		w.moves(3, w.store.Expire, all)

		w.moves(1, w.store.Purge, all)

		require.Equal(w, map[string]store.State{"for ever": store.Expired, "for long": store.Expired, "no longer": nothing},
			w.states("for ever", "for long", "no longer"))
		w.moves(0, w.store.Purge, all)
	}},

	{"a key that was purged is new", func(w *world) {
		completion := created("{}")
		completion.ReplayFor, completion.KeepFor = over, time.Millisecond
		w.completes(w.wins("K1"), completion)
		w.moves(1, w.store.Expire, all)
		w.moves(1, w.store.Purge, all)

		w.wins("K1")
		w.moves(0, w.store.Expire, all)
		w.moves(0, w.store.Purge, all)
		require.Equal(w, store.Executing, w.state("K1"), "nothing of its former life moves it")
	}},

	{"a released key has left nothing that time would move", func(w *world) {
		require.NoError(w, w.winsFor("K1", over).Release(w.Context()))
		w.wins("K1")
		w.moves(0, w.store.Abandon, all)
		require.Equal(w, store.Executing, w.state("K1"))
	}},

	{"sweeps go in batches", func(w *world) {
		const records = 5
		for n := range records {
			completion := created("{}")
			completion.ReplayFor, completion.KeepFor = over, time.Millisecond
			w.completes(w.wins(fmt.Sprintf("completed %d", n)), completion)
			w.winsFor(fmt.Sprintf("dead %d", n), over)
		}
		for name, sweep := range map[string]sweep{"abandon": w.store.Abandon, "expire": w.store.Expire} {
			w.movesInBatches(name, sweep, 2, 2, 1, 0)
		}
		w.movesInBatches("purge", w.store.Purge, 2, 2, 1, 0)
		for n := range records {
			require.Equal(w, store.Unknown, w.state(fmt.Sprintf("dead %d", n)))
			require.Equal(w, nothing, w.state(fmt.Sprintf("completed %d", n)))
		}
	}},

	{"what is not due does not stand in the way of what is", func(w *world) {
		const records = 5
		for n := range records {
			w.wins(fmt.Sprintf("alive %d", n))
			w.completes(w.winsFor(fmt.Sprintf("completed %d", n), over), created("{}"))
			require.NoError(w, w.winsFor(fmt.Sprintf("released %d", n), over).Release(w.Context()))
			require.NoError(w, w.winsFor(fmt.Sprintf("unknown %d", n), over).MarkUnknown(w.Context(), store.Doubt{}))
		}
		w.winsFor("dead", over)
		w.moves(1, w.store.Abandon, 1)
		require.Equal(w, store.Unknown, w.state("dead"))
	}},
}

// movesInBatches calls a sweep with a limit of two, once for each number that
// it should return.
func (w *world) movesInBatches(name string, sweep sweep, want ...int) {
	w.Helper()
	for n, moved := range want {
		got, err := sweep(w.Context(), 2)
		require.NoError(w, err, name)
		require.Equal(w, moved, got, "%s, batch %d", name, n+1)
	}
}
