package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

var naturalKeys = []story{
	{"a business identity belongs to the first key that came with it", func(w *world) {
		w.winsNatural(identity("K1"), "R-1")
		bob := identity("K1")
		bob.Actor = "bob"

		w.isTaken(identity("K2"), "R-1", identity("K1"))
		w.isTaken(bob, "R-1", identity("K1")) // the same key, but another actor's

		require.Nil(w, w.record("K2"), "nothing was inserted")
		require.Nil(w, w.recordOf(bob), "nothing was inserted")
		require.Equal(w, "R-1", w.record("K1").NaturalKey)
		require.EqualValues(w, 1, w.counts()[store.Executing])
	}},

	{"tenants and operations do not mix", func(w *world) {
		w.winsNatural(identity("K1"), "R-1")
		tenant, operation := identity("the tenant's"), identity("the operation's")
		tenant.Tenant, operation.Operation = "initech", "pay"
		for _, id := range []store.Identity{tenant, operation} {
			w.winsNatural(id, "R-1")
		}
		for _, holder := range []store.Identity{identity("K1"), tenant, operation} {
			w.isTaken(store.Identity{Scope: holder.Scope, Key: "K2"}, "R-1", holder)
		}
	}},

	{"business identities are compared byte by byte, and none is none", func(w *world) {
		for n, natural := range []string{"r", "R", "r ", " r", "r%", "r_", `r\`, "\u00e9", "e\u0301", "r\x1fs", "rs", strings.Repeat("r", 1000), "", ""} {
			id := identity(keyOf(n))
			w.winsNatural(id, natural)
			require.Equal(w, natural, w.recordOf(id).NaturalKey)
		}
	}},

	{"the same key loses as ever, with whatever business identity it comes", func(w *world) {
		claim := w.winsNatural(identity("K1"), "R-1")
		for state, settle := range map[store.State]func() error{
			store.Executing: func() error { return nil },
			store.Completed: func() error { return claim.Complete(w.Context(), created("{}")) },
		} {
			require.NoError(w, settle())
			for _, natural := range []string{"R-1", "R-2", ""} {
				got, held, err := w.store.Claim(w.Context(), identity("K1"), fingerprint("other"), natural, ample)
				require.NoError(w, err, "%s %q", state, natural)
				require.Nil(w, got)
				w.unchanged(w.record("K1"), held, natural)
			}
		}

		w.winsNatural(identity("K2"), "R-2") // which the loser has not taken
	}},

	{"a key that lost to another's business identity loses to its own record first", func(w *world) {
		w.winsNatural(identity("K1"), "R-1")
		w.winsNatural(identity("K2"), "R-2")

		_, held, err := w.store.Claim(w.Context(), identity("K2"), fingerprint("K2"), "R-1", ample)

		require.NoError(w, err)
		w.unchanged(w.record("K2"), held, "both constraints stand in its way, and its own record answers")
	}},

	{"a business identity is taken for as long as its record lives", func(w *world) {
		claim := w.winsNatural(identity("K1"), "R-1")
		taken := func(state store.State) {
			require.Equal(w, state, w.state("K1"))
			require.Equal(w, "R-1", w.record("K1").NaturalKey)
			w.isTaken(identity("K2"), "R-1", identity("K1"))
		}
		taken(store.Executing)
		require.NoError(w, claim.MarkUnknown(w.Context(), store.Doubt{Reason: "timeout"}))
		taken(store.Unknown)
		completion := created("{}")
		completion.ReplayFor, completion.KeepFor = over, time.Millisecond
		w.completes(claim, completion)
		taken(store.Expired)
		w.moves(1, w.store.Expire, all)
		taken(store.Expired)

		w.moves(1, w.store.Purge, all)

		w.winsNatural(identity("K2"), "R-1")
	}},

	{"a completion by hand keeps it, and a release frees it", func(w *world) {
		w.winsNatural(identity("completed"), "R-1")
		w.winsNatural(identity("released"), "R-2")
		claim := w.winsNatural(identity("given back"), "R-3")
		for key, resolution := range map[string]store.Resolution{"completed": asCompleted("found"), "released": asNotExecuted} {
			id := identity(key)
			require.NoError(w, w.engine.MarkUnknown(w.Context(), id, w.record(key).Token, store.Doubt{}))
			require.NoError(w, w.store.Resolve(w.Context(), w.record(key), resolution))
		}
		require.NoError(w, claim.Release(w.Context()))

		w.isTaken(identity("K1"), "R-1", identity("completed"))
		w.winsNatural(identity("K2"), "R-2")
		w.winsNatural(identity("K3"), "R-3")
	}},

	{"a claim lost to a holder that is gone meanwhile is made again", func(w *world) {
		holder := w.winsNatural(identity("K1"), "R-1")
		w.store = store.New(&vanishing{Engine: w.engine, vanish: func() error { return holder.Release(w.Context()) }, times: 1})
		// The same key, so that the engine itself reports a record that it lost to.
		w.winsNatural(identity("K1"), "R-1")
		w.store = store.New(w.engine)
		w.isTaken(identity("K2"), "R-1", identity("K1"))
	}},

	{"of three at once one executes and the others are told why they do not", func(w *world) {
		const rounds = 200
		for round := range rounds {
			w.threeAtOnce(round)
		}
	}},

	{"of claims and releases at once never two hold the business identity", func(w *world) {
		const callers, turns = 6, 20
		stores := []*store.Store{w.store, store.New(w.another())}
		var holding sync.Mutex
		var done sync.WaitGroup
		for caller := range callers {
			id := identity(keyOf(caller / 2)) // two of each key
			done.Go(func() {
				for range turns {
					claim, held, err := stores[caller%2].Claim(w.Context(), id, fingerprint("R-1"), "R-1", ample)
					var taken *store.NaturalKeyTakenError
					switch {
					case errors.As(err, &taken):
						if taken.Holder == id {
							w.Errorf("caller %d is told that it stands in its own way", caller)
						}
					case errors.Is(err, store.ErrContended):
					case err != nil:
						w.Errorf("caller %d: %v", caller, err)
					case claim == nil:
						if held.Identity != id {
							w.Errorf("caller %d is shown %v", caller, held.Identity)
						}
					default:
						if !holding.TryLock() {
							w.Errorf("caller %d executes while another does", caller)
							return
						}
						holding.Unlock()
						if err := claim.Release(w.Context()); err != nil {
							w.Errorf("caller %d: releasing: %v", caller, err)
						}
					}
				}
			})
		}
		done.Wait()
	}},
}

// threeAtOnce sends the same key with the same payload and with another one, and
// another key for the same business identity, after what the round says.
func (w *world) threeAtOnce(round int) {
	w.Helper()
	natural := fmt.Sprint("R-", round)
	past := identity(fmt.Sprint("past ", round))
	pasts := []string{"none", "released", "resolved released", "expired", "resolved completed", "unknown"}
	open := w.leaves(past, natural, pasts[round%len(pasts)])

	same, other := identity(fmt.Sprint("same ", round)), identity(fmt.Sprint("other ", round))
	requests := []struct {
		id      store.Identity
		payload string
	}{{same, "payload"}, {same, "another payload"}, {other, "payload"}}
	claims, held, errs := make([]*store.Claim, 3), make([]*store.Record, 3), make([]error, 3)
	stores := []*store.Store{w.store, store.New(w.engine), w.second()}
	var start, done sync.WaitGroup
	start.Add(1)
	for n, r := range requests {
		done.Go(func() {
			start.Wait()
			claims[n], held[n], errs[n] = stores[n].Claim(w.Context(), r.id, fingerprint(r.payload), natural, ample)
		})
	}
	start.Done()
	done.Wait()

	holder, payload, winners := past, "", 0
	for n, claim := range claims {
		if claim != nil {
			winners++
			holder, payload = requests[n].id, requests[n].payload
		}
	}
	require.Equal(w, map[bool]int{true: 1, false: 0}[open], winners, "round %d, after %s", round, pasts[round%len(pasts)])
	for n, r := range requests {
		var taken *store.NaturalKeyTakenError
		switch {
		case claims[n] != nil:
		case r.id == holder:
			require.NoError(w, errs[n], "round %d", round)
			require.Equal(w, fingerprint(payload), held[n].Fingerprint, "round %d: whose record it is", round)
		default:
			require.ErrorAs(w, errs[n], &taken, "round %d", round)
			require.Equal(w, holder, taken.Holder, "round %d", round)
			require.Nil(w, w.recordOf(r.id), "round %d", round)
		}
	}
}

// leaves makes a record with a past, and reports whether its business identity is
// free after it.
func (w *world) leaves(id store.Identity, natural, past string) (open bool) {
	w.Helper()
	if past == "none" {
		return true
	}
	claim := w.winsNatural(id, natural)
	completion := created("past")
	switch past {
	case "released":
		require.NoError(w, claim.Release(w.Context()))
		return true
	case "expired":
		completion.ReplayFor = over
		w.completes(claim, completion)
		w.moves(1, w.store.Expire, all)
		return false
	}
	require.NoError(w, claim.MarkUnknown(w.Context(), store.Doubt{Reason: "timeout"}))
	switch past {
	case "resolved released":
		require.NoError(w, w.store.Resolve(w.Context(), w.recordOf(id), asNotExecuted))
		return true
	case "resolved completed":
		require.NoError(w, w.store.Resolve(w.Context(), w.recordOf(id), asCompleted("past")))
	}
	return false
}

// second is one other instance for the whole story.
func (w *world) second() *store.Store {
	w.Helper()
	if w.other == nil {
		w.other = store.New(w.another())
	}
	return w.other
}

// isTaken requires that the claim is refused for its business identity's sake.
func (w *world) isTaken(id store.Identity, natural string, holder store.Identity) {
	w.Helper()
	claim, held, err := w.store.Claim(w.Context(), id, fingerprint(id.Key), natural, ample)
	var taken *store.NaturalKeyTakenError
	require.ErrorAs(w, err, &taken)
	require.Equal(w, holder, taken.Holder)
	require.Nil(w, claim)
	require.Nil(w, held)
}
