package storetest

import (
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

var claims = []story{
	{"the first wins and everyone after it gets the record", func(w *world) {
		w.wins("K1")

		again := w.loses("K1")

		require.Equal(w, store.Executing, again.State)
		require.Nil(w, again.Response)
		w.unchanged(w.record("K1"), again, "a lost claim reads what Read reads, and changes nothing")
	}},

	{"a record says what it was claimed for", func(w *world) {
		fp := fingerprint("payload")
		fp.Algorithm, fp.Version, fp.Members = 7, "orders/v2 ü", []byte{0, 1, 0xff, '\n'}
		_, _, err := w.store.Claim(w.Context(), identity("K1"), fp, "", 90*time.Second)
		require.NoError(w, err)

		record := w.record("K1")

		require.Equal(w, fp, record.Fingerprint)
		require.Equal(w, store.Executing, record.State)
		require.WithinDuration(w, record.ClaimedAt.Add(90*time.Second), record.LeaseUntil, time.Millisecond)
		require.False(w, record.ClaimedAt.After(record.Now), "both are the database's clock")
		require.Zero(w, record.SettledAt)
		require.Zero(w, record.ReplayUntil)
		require.Zero(w, record.Status)
		require.Empty(w, record.Resource)
		require.Empty(w, record.Reason)
	}},

	{"whoever sends another payload sees the fingerprint of the first", func(w *world) {
		w.completes(w.wins("K1"), created("{}"))

		claim, held, err := w.store.Claim(w.Context(), identity("K1"), fingerprint("another payload"), "", ample)

		require.NoError(w, err)
		require.Nil(w, claim)
		require.Equal(w, fingerprint("K1"), held.Fingerprint)
	}},

	{"a key that nobody claimed has no record", func(w *world) {
		_, err := w.store.Read(w.Context(), identity("K1"))
		require.ErrorIs(w, err, store.ErrNoRecord)
	}},

	{"a lease that is over gives the key to nobody", func(w *world) {
		w.winsFor("K1", over)
		require.Equal(w, store.Executing, w.loses("K1").State)

		w.moves(1, w.engine.Abandon, all)
		require.Equal(w, store.Unknown, w.loses("K1").State)
	}},

	{"a released key is claimed afresh and the old claim can do nothing to it", func(w *world) {
		old := w.wins("K1")
		require.NoError(w, old.Release(w.Context()))
		require.Nil(w, w.record("K1"))

		w.wins("K1")
		before := w.record("K1")

		for name, settle := range map[string]func() error{
			"complete":     func() error { return old.Complete(w.Context(), created("old")) },
			"mark unknown": func() error { return old.MarkUnknown(w.Context(), store.Doubt{Reason: "old"}) },
		} {
			var lost *store.ClaimLostError
			require.ErrorAs(w, settle(), &lost, name)
			w.unchanged(before, lost.Record, name+" is told what is there")
		}
		require.NoError(w, old.Release(w.Context()), "its record is gone, as it should be")
		w.unchanged(before, w.record("K1"), "the new claim is as it was")
	}},

	{"scopes do not mix", func(w *world) {
		ids := []store.Identity{
			{Scope: store.Scope{Tenant: "a", Actor: "bc", Operation: "d"}, Key: "K"},
			{Scope: store.Scope{Tenant: "ab", Actor: "c", Operation: "d"}, Key: "K"},
			{Scope: store.Scope{Tenant: "a", Actor: "b", Operation: "cd"}, Key: "K"},
			{Scope: store.Scope{Tenant: "a", Actor: "bcd", Operation: ""}, Key: "K"},
			{Scope: store.Scope{Tenant: "", Actor: "abc", Operation: "d"}, Key: "K"},
			{Scope: store.Scope{Tenant: "a", Actor: "bc", Operation: "dK"}, Key: ""},
			{Scope: store.Scope{Tenant: "a|bc", Actor: "", Operation: "d"}, Key: "K"},
			{Scope: store.Scope{Tenant: "a/bc", Actor: "d", Operation: "K"}, Key: "K"},
			{Scope: store.Scope{Tenant: "bc", Actor: "a", Operation: "d"}, Key: "K"},
		}
		w.eachHasARecordOfItsOwn(ids)
	}},

	{"keys and scopes are compared byte by byte", func(w *world) {
		var ids []store.Identity
		for _, key := range []string{
			"k1", "K1", "k1 ", " k1", "K١", "k1\t", "k%", "k_", `k\`, `k"`, "k'", "k''", "$1", "k;--", "\U0001F511",
			"\u00e9", "e\u0301", // one letter to the eye
			"\u0130", "i\u0307", "\u00df", "ss", "SS", // alike to a case-insensitive comparison
			strings.Repeat("x", 255), strings.Repeat("x", 254), strings.Repeat("x", 254) + "y",
		} {
			ids = append(ids, identity(key))
			inActor := identity("K")
			inActor.Actor = key
			ids = append(ids, inActor)
		}
		w.eachHasARecordOfItsOwn(ids)
	}},

	{"of many at once exactly one wins", func(w *world) {
		const rounds, claimants = 10, 16
		stores := []*store.Store{w.store, store.New(w.another())}
		for round := range rounds {
			key := string(rune('A' + round))
			var winners, losers []*store.Record
			var mu sync.Mutex
			var start, done sync.WaitGroup
			start.Add(1)
			for n := range claimants {
				done.Go(func() {
					start.Wait()
					claim, held, err := stores[n%2].Claim(w.Context(), identity(key), fingerprint(key), "", ample)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err != nil:
						w.Errorf("claimant %d: %v", n, err)
					case claim != nil:
						winners = append(winners, held)
					default:
						losers = append(losers, held)
					}
				})
			}
			start.Done()
			done.Wait()
			require.Len(w, winners, 1)
			require.Len(w, losers, claimants-1)
			for _, loser := range losers {
				w.unchanged(w.record(key), loser, "all see the one record")
			}
		}
	}},
}

// eachHasARecordOfItsOwn claims all of the identities, and requires that each
// wins and is found again as itself.
func (w *world) eachHasARecordOfItsOwn(ids []store.Identity) {
	w.Helper()
	for n, id := range ids {
		draft := store.Draft{Identity: id, Fingerprint: fingerprint(id.Key), Token: token(n), Lease: ample}
		won, _, err := w.engine.Claim(w.Context(), draft)
		require.NoError(w, err, "%q", id)
		require.True(w, won, "%q is taken for another", id)
	}
	for n, id := range ids {
		record := w.recordOf(id)
		require.NotNil(w, record, "%q", id)
		require.Equal(w, token(n), record.Token, "%q", id)
	}
}

// token makes different tokens of different numbers.
func token(n int) store.Token { return store.Token{0: 't', 14: byte(n >> 8), 15: byte(n)} }
