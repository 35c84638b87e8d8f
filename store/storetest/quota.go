package storetest

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// windowOfAges is one that does not end while a story is told: its length reaches
// far beyond the time since the clock's beginning.
const windowOfAges = 100 * 365 * 24 * time.Hour

func newKeys(n int) store.Quota   { return store.Quota{Max: n, Window: windowOfAges} }
func executing(n int) store.Quota { return store.Quota{Max: n} }

func ofTenant(q store.Quota) store.Quota {
	q.PerTenant = true
	return q
}

func identityOf(actor, key string) store.Identity {
	id := identity(key)
	id.Actor = actor
	return id
}

var quotas = []story{
	{"so many keys are new in a window and no more", func(w *world) {
		for n := range 3 {
			w.winsWithin(identity(keyOf(n)), newKeys(3))
		}

		w.exceeds(identity("K3"), newKeys(3), newKeys(3))

		require.Nil(w, w.record("K3"), "nothing was inserted")
		w.winsWithin(identity("K3"), newKeys(4)) // and nothing was counted
		w.exceeds(identity("K4"), newKeys(4), newKeys(4))
	}},

	{"so many execute at once and no more", func(w *world) {
		one := w.winsWithin(identity("one"), executing(2))
		two := w.winsWithin(identity("two"), executing(2))
		three := w.exceeds(identity("three"), executing(2), executing(2))
		require.Equal(w, store.RetryExecuting, three.RetryAfter)

		w.completes(one, created("{}"))
		claim := w.winsWithin(identity("three"), executing(2))
		w.exceeds(identity("four"), executing(2), executing(2))
		require.NoError(w, two.MarkUnknown(w.Context(), store.Doubt{}))
		w.winsWithin(identity("four"), executing(2))
		w.exceeds(identity("five"), executing(2), executing(2))
		require.NoError(w, claim.Release(w.Context()))
		w.winsWithin(identity("five"), executing(2))
		w.exceeds(identity("six"), executing(2), executing(2))
	}},

	{"a claimant that died is not executing once its lease is over", func(w *world) {
		_, _, err := w.store.Claim(w.Context(), identity("K1"), fingerprint("K1"), "", over, executing(1))
		require.NoError(w, err)
		w.exceeds(identity("K2"), executing(1), executing(1))

		w.moves(1, w.store.Abandon, all)

		w.winsWithin(identity("K2"), executing(1))
	}},

	{"a key that has a record is never refused, whatever is used up", func(w *world) {
		strict := []store.Quota{newKeys(1), executing(1), ofTenant(newKeys(1)), ofTenant(executing(1))}
		claim := w.winsWithin(identity("K1"), strict...)
		for state, settle := range map[store.State]func() error{
			store.Executing: func() error { return nil },
			store.Completed: func() error { return claim.Complete(w.Context(), created("{}")) },
		} {
			require.NoError(w, settle())
			for range 3 {
				got, held, err := w.store.Claim(w.Context(), identity("K1"), fingerprint("other"), "", ample, strict...)
				require.NoError(w, err, state)
				require.Nil(w, got)
				w.unchanged(w.record("K1"), held, string(state))
			}
		}
		w.exceeds(identity("K2"), newKeys(1), strict...)
	}},

	{"actors, tenants and operations are counted apart, and a tenant's actors together", func(w *world) {
		both := []store.Quota{newKeys(2), ofTenant(newKeys(3))}
		w.winsWithin(identityOf("alice", "K1"), both...)
		w.winsWithin(identityOf("alice", "K2"), both...)
		w.exceeds(identityOf("alice", "K3"), newKeys(2), both...)
		w.winsWithin(identityOf("bob", "K1"), both...)
		w.exceeds(identityOf("carol", "K1"), ofTenant(newKeys(3)), both...)

		tenant, operation := identityOf("alice", "K1"), identityOf("alice", "K1")
		tenant.Tenant, operation.Operation = "initech", "pay"
		w.winsWithin(tenant, both...)
		w.winsWithin(operation, both...)
	}},

	{"a tenant's executions are counted together", func(w *world) {
		both := []store.Quota{executing(1), ofTenant(executing(2))}
		alice := w.winsWithin(identityOf("alice", "K1"), both...)
		w.winsWithin(identityOf("bob", "K1"), both...)
		w.exceeds(identityOf("carol", "K1"), ofTenant(executing(2)), both...)

		w.completes(alice, created("{}"))

		w.winsWithin(identityOf("carol", "K1"), both...)
		w.exceeds(identityOf("alice", "K2"), ofTenant(executing(2)), both...)
	}},

	{"whoever releases a key has used it all the same", func(w *world) {
		for range 2 {
			require.NoError(w, w.winsWithin(identity("K1"), newKeys(2)).Release(w.Context()))
		}
		w.exceeds(identity("K1"), newKeys(2), newKeys(2))
	}},

	{"a window ends and the next begins", func(w *world) {
		const window = 50 * time.Millisecond
		quota := store.Quota{Max: 1, Window: window}
		n := 0
		wins := func() bool {
			n++
			claim, held, err := w.store.Claim(w.Context(), identity(keyOf(n)), fingerprint("K"), "", ample, quota)
			var exceeded *store.QuotaExceededError
			if errors.As(err, &exceeded) {
				require.Positive(w, exceeded.RetryAfter)
				require.LessOrEqual(w, exceeded.RetryAfter, window)
				return false
			}
			require.NoError(w, err)
			require.Nil(w, held)
			return claim != nil
		}
		for range 3 {
			w.until("a key is allowed", wins)
		}
		w.until("windows that are over are purged", func() bool {
			purged, err := w.store.PurgeQuotas(w.Context(), all)
			require.NoError(w, err)
			return purged > 0
		})
		w.until("and begin anew", wins)
	}},

	{"a purge takes nothing that still counts", func(w *world) {
		both := []store.Quota{newKeys(2), executing(1)}
		first, _, err := w.store.Claim(w.Context(), identity("K1"), fingerprint("K1"), "", over, both...)
		require.NoError(w, err)
		purges := func(want int) {
			purged, err := w.store.PurgeQuotas(w.Context(), all)
			require.NoError(w, err)
			require.Equal(w, want, purged)
		}

		purges(0) // its lease is over, and nobody has said what became of it
		w.exceeds(identity("K2"), executing(1), both...)
		w.completes(first, created("{}"))
		purges(1)
		purges(0)
		w.winsWithin(identity("K2"), both...)
		w.exceeds(identity("K3"), newKeys(2), both...)
	}},

	{"a claim that is repeated after a lost acknowledgement counts once", func(w *world) {
		f := w.forgets()
		f.lose = 2
		w.winsWithin(identity("K1"), newKeys(2), executing(2))
		f.lose = 0

		w.winsWithin(identity("K2"), newKeys(2), executing(2))
		w.exceeds(identity("K3"), newKeys(2), newKeys(2), executing(2))
	}},

	{"the last one that is allowed is found again by its token", func(w *world) {
		f := w.forgets()
		f.lose = 2
		w.winsWithin(identity("K1"), newKeys(1), executing(1))
		require.Equal(w, store.Executing, w.state("K1"))
	}},

	{"a business identity that is taken is told so, and not counted", func(w *world) {
		claims := func(key, natural string) error {
			_, _, err := w.store.Claim(w.Context(), identity(key), fingerprint(key), natural, ample, newKeys(2))
			return err
		}
		var taken *store.NaturalKeyTakenError
		var exceeded *store.QuotaExceededError
		require.NoError(w, claims("K1", "R-1"))
		require.ErrorAs(w, claims("K2", "R-1"), &taken)
		require.NoError(w, claims("K3", "R-3"))
		require.ErrorAs(w, claims("K4", "R-4"), &exceeded)
		require.ErrorAs(w, claims("K5", "R-1"), &taken)
		require.Equal(w, identity("K1"), taken.Holder)
	}},

	{"of many new keys at once exactly so many are allowed", func(w *world) {
		const callers, allowed = 64, 20
		for name, limits := range map[string][]store.Quota{
			"new keys":               {newKeys(allowed)},
			"executing":              {executing(allowed)},
			"new keys of the tenant": {ofTenant(newKeys(allowed))},
			"executing, tenant":      {ofTenant(executing(allowed))},
			"all":                    {ofTenant(executing(allowed)), executing(allowed), ofTenant(newKeys(allowed)), newKeys(allowed)},
		} {
			won := w.atOnce(callers, func(n int) (store.Identity, []store.Quota) {
				id := identity(keyOf(n))
				id.Operation = name
				if limits[0].PerTenant && len(limits) == 1 {
					id.Actor = fmt.Sprint("actor ", n%5)
				}
				return id, limits
			})
			require.EqualValues(w, allowed, won, name)
		}
	}},

	{"the same keys at once are counted once each", func(w *world) {
		const keys = 4
		limits := []store.Quota{newKeys(keys), executing(keys), ofTenant(newKeys(keys))}
		won := w.atOnce(6*keys, func(n int) (store.Identity, []store.Quota) { return identity(keyOf(n % keys)), limits })
		require.EqualValues(w, keys, won, "a loser is told of its record, and not of a quota")
		w.exceeds(identity("one more"), newKeys(keys), limits...)
	}},

	{"of claims that come and go never more execute than allowed", func(w *world) {
		const callers, turns, allowed = 8, 12, 3
		stores := []*store.Store{w.store, w.second()}
		var holders, won atomic.Int64
		var done sync.WaitGroup
		for caller := range callers {
			done.Go(func() {
				for turn := range turns {
					id := identityOf(fmt.Sprint("actor ", caller%2), fmt.Sprint(caller, "/", turn))
					claim, _, err := stores[caller/2%2].Claim(w.Context(), id, fingerprint("K"), "", ample, ofTenant(executing(allowed)), executing(2))
					var exceeded *store.QuotaExceededError
					switch {
					case errors.As(err, &exceeded), errors.Is(err, store.ErrContended):
						continue
					case err != nil:
						w.Errorf("caller %d: %v", caller, err)
						return
					}
					won.Add(1)
					if n := holders.Add(1); n > allowed {
						w.Errorf("%d are executing", n)
					}
					holders.Add(-1)
					if err := claim.Complete(w.Context(), created("{}")); err != nil {
						w.Errorf("caller %d: completing: %v", caller, err)
					}
				}
			})
		}
		done.Wait()
		require.GreaterOrEqual(w, won.Load(), int64(allowed))
	}},
}

// atOnce claims for so many callers on two instances, and returns how many have won.
// All others have to be told of a quota, or of a record of their key.
func (w *world) atOnce(callers int, of func(n int) (store.Identity, []store.Quota)) int64 {
	w.Helper()
	stores := []*store.Store{w.store, w.second()}
	var won atomic.Int64
	var start, done sync.WaitGroup
	start.Add(1)
	for n := range callers {
		id, limits := of(n)
		done.Go(func() {
			start.Wait()
			claim, held, err := stores[n%2].Claim(w.Context(), id, fingerprint(id.Key), "", ample, limits...)
			var exceeded *store.QuotaExceededError
			switch {
			case claim != nil:
				won.Add(1)
			case held != nil, errors.As(err, &exceeded):
			default:
				w.Errorf("caller %d: %v", n, err)
			}
		})
	}
	start.Done()
	done.Wait()
	return won.Load()
}

// winsWithin claims a key that the quotas allow.
func (w *world) winsWithin(id store.Identity, limits ...store.Quota) *store.Claim {
	w.Helper()
	claim, held, err := w.store.Claim(w.Context(), id, fingerprint(id.Key), "", ample, limits...)
	require.NoError(w, err)
	require.Nil(w, held, "the record is there already")
	require.NotNil(w, claim)
	return claim
}

// exceeds requires that the claim is refused for the sake of one of its quotas.
func (w *world) exceeds(id store.Identity, because store.Quota, limits ...store.Quota) *store.QuotaExceededError {
	w.Helper()
	claim, held, err := w.store.Claim(w.Context(), id, fingerprint(id.Key), "", ample, limits...)
	var exceeded *store.QuotaExceededError
	require.ErrorAs(w, err, &exceeded)
	require.Nil(w, claim)
	require.Nil(w, held)
	require.Equal(w, because, exceeded.Quota)
	require.Positive(w, exceeded.RetryAfter)
	require.Less(w, exceeded.RetryAfter, time.Duration(math.MaxInt64))
	return exceeded
}
