package postgres_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// A window that no story sees the end of.
const ages = 100 * 365 * 24 * time.Hour

const (
	lockQuota = `SELECT 1 FROM idempotency_quotas FOR UPDATE`
	useUp     = `UPDATE idempotency_quotas SET used = used + 1`

	// What a claim that came after the end of our window has left behind.
	nextWindow = `UPDATE idempotency_quotas SET window_end = window_end + interval '100 years', used = 1`
)

// claimsWithin begins the claim of a key that has one quota.
func (s *scene) claimsWithin(key string, token store.Token, quotas ...store.Quota) <-chan claimed {
	d := draft(token)
	d.Key, d.Quotas = key, quotas
	return s.claimsDraft(d)
}

// claimsDraft begins any claim.
func (s *scene) claimsDraft(d store.Draft) <-chan claimed {
	result := make(chan claimed, 1)
	go func() {
		var c claimed
		c.won, c.held, c.err = s.engine.Claim(s.Context(), d)
		result <- c
	}()
	return result
}

// waitForQuota waits until so many claims wait for a quota that somebody holds.
func (s *scene) waitForQuota(n int) {
	s.Helper()
	pgtest.Until(s, "claims wait for the quota", func() bool { return s.engine.Waiting() == n })
}

func TestClaimWaitsForTheQuotaAndSeesWhatItsHolderCounted(t *testing.T) {
	quota := store.Quota{Max: 2, Window: ages}
	for end, wins := range map[string]bool{commit: false, rollback: true} {
		t.Run(end, func(t *testing.T) {
			onEveryIsolation(t, func(t *testing.T, s *scene) {
				var next <-chan claimed
				s.play(
					step{"one of two is used", func() { require.True(s, (<-s.claimsWithin("K1", rightToken, quota)).won) }},
					step{"another instance uses the other", s.rivalRuns(begin, lockQuota, useUp)},
					step{"a client sends a new key", func() { next = s.claimsWithin("K2", otherToken, quota) }},
					step{"it waits", s.waits},
					step{"the other instance ends", s.rivalRuns(end)},
					step{"it is told by what is there then", func() {
						got := <-next
						require.Equal(s, wins, got.won)
						if !wins {
							var exceeded *store.QuotaExceededError
							require.ErrorAs(s, got.err, &exceeded)
						}
					}},
				)
			})
		})
	}
}

func TestClaimThatWaitedPastItsWindowIsCountedInTheNext(t *testing.T) {
	s := newScene(t)
	quota := store.Quota{Max: 2, Window: ages}
	var next <-chan claimed
	s.play(
		step{"a key is new", func() { require.True(s, (<-s.claimsWithin("K1", rightToken, quota)).won) }},
		step{"another instance begins the next window", s.rivalRuns(begin, nextWindow)},
		step{"a claim begins before that", func() { next = s.claimsWithin("K2", otherToken, quota) }},
		step{"it waits", s.waits},
		step{"the next window is there", s.rivalRuns(commit)},
		step{"it is counted there", func() {
			require.True(s, (<-next).won)
			require.Equal(s, 2, pgtest.Get[int](s, s.db, `SELECT used FROM idempotency_quotas`))
		}},
	)
}

func TestReplayDoesNotWaitForTheQuota(t *testing.T) {
	s := newScene(t)
	quotas := []store.Quota{{Max: 1, Window: ages}, {Max: 1}, {Max: 1, PerTenant: true}}
	require.True(t, (<-s.claimsWithin("K1", rightToken, quotas...)).won)
	require.NoError(t, s.engine.Complete(t.Context(), identity, rightToken, *answer(ample)))
	s.rivalRuns(begin, lockQuota)()

	replay := <-s.claimsWithin("K1", otherToken, quotas...)

	require.NoError(t, replay.err)
	require.Equal(t, store.Completed, replay.held.State)
}

func TestQuotaThatIsLockedForTooLongIsBusy(t *testing.T) {
	db := pgtest.New(t)
	config := patient(db)
	config.LockTimeout = 100 * time.Millisecond
	s := newSceneWith(t, db, config)
	quota := store.Quota{Max: 2}
	require.True(t, (<-s.claimsWithin("K1", rightToken, quota)).won)
	s.rivalRuns(begin, lockQuota)()

	refused := <-s.claimsWithin("K2", otherToken, quota)

	var failed *store.EngineError
	require.ErrorAs(t, refused.err, &failed)
	require.Equal(t, store.Busy, failed.Failure)
	s.rivalRuns(rollback)()
	require.True(t, (<-s.claimsWithin("K2", otherToken, quota)).won)
}

// Whoever waits for a quota has one connection with all who do.
func TestSettlementFindsAConnectionWhileClaimsWaitForAQuota(t *testing.T) {
	const waiting, conns = 16, 3
	db := pgtest.New(t)
	config := patient(db)
	config.MaxConns = conns
	s := newSceneWith(t, db, config)
	quota := store.Quota{Max: 100}
	require.True(t, (<-s.claimsWithin("K1", rightToken, quota)).won)
	s.rivalRuns(begin, lockQuota)()
	var claims []<-chan claimed
	for n := range waiting {
		claims = append(claims, s.claimsWithin(fmt.Sprint("new ", n), store.Token{9, byte(n)}, quota))
	}
	s.waitForQuota(waiting)

	require.NoError(t, s.engine.Complete(timely(t), identity, rightToken, *answer(ample)))

	s.waits()
	s.rivalRuns(rollback)()
	for _, claim := range claims {
		require.True(t, (<-claim).won)
	}
}

// Claims that have waited for a quota together are decided in one transaction.
func TestClaimsThatWaitedTogetherAreCountedOneByOne(t *testing.T) {
	const allowed, newKeys = 5, 9
	for name, quotas := range map[string][]store.Quota{
		"new keys":            {{Max: allowed, Window: ages}},
		"executing":           {{Max: allowed}},
		"executing of tenant": {{Max: allowed, PerTenant: true}},
		"the strictest":       {{Max: 50}, {Max: allowed, Window: ages}, {Max: 50, PerTenant: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			require.True(t, (<-s.claimsWithin("K1", rightToken, quotas...)).won)
			s.rivalRuns(begin, lockQuota)()
			first := s.claimsWithin("first", store.Token{8}, quotas...)
			s.waitForQuota(1)
			var claims []<-chan claimed
			for n := range newKeys {
				claims = append(claims, s.claimsWithin(fmt.Sprint("new ", n), store.Token{9, byte(n)}, quotas...))
			}
			known := []<-chan claimed{s.claimsWithin("K1", store.Token{10}, quotas...), s.claimsWithin("first", store.Token{11}, quotas...)}
			s.waitForQuota(1 + newKeys + len(known))

			s.rivalRuns(rollback)()

			require.True(t, (<-first).won)
			won := 2
			for _, claim := range claims {
				got := <-claim
				if got.won {
					won++
					continue
				}
				var exceeded *store.QuotaExceededError
				require.ErrorAs(t, got.err, &exceeded)
				require.Equal(t, allowed, exceeded.Quota.Max)
			}
			require.Equal(t, allowed, won)
			for _, retry := range known {
				got := <-retry
				require.NoError(t, got.err, "a key that has a record is never refused")
				require.Equal(t, store.Executing, got.held.State)
			}
			require.Equal(t, allowed, s.records())
			for _, quota := range quotas {
				table := `SELECT count(*)::int FROM idempotency_slots`
				if quota.Window > 0 {
					table = `SELECT sum(used)::int FROM idempotency_quotas`
				}
				if quota.Max == allowed {
					require.Equal(t, allowed, pgtest.Get[int](t, s.db, table))
				}
			}
		})
	}
}

// Claims of several actors share a transaction, but not an actor's wait.
func TestActorWhoseQuotaIsHeldKeepsNoOther(t *testing.T) {
	s := newScene(t)
	of := func(actor, key string) <-chan claimed {
		d := draft(store.Token{byte(len(actor)), byte(len(key))})
		d.Actor, d.Key, d.Quotas = actor, key, []store.Quota{{Max: 9}, {Max: 9, Window: ages}}
		return s.claimsDraft(d)
	}
	require.True(t, (<-of("alice", "K")).won)
	s.rivalRuns(begin, lockQuota)()

	held := of("alice", "key")
	for _, key := range []string{"a", "aa", "aaa", "aaaa"} {
		require.True(t, (<-of("bob", key)).won)
	}

	s.waits()
	s.rivalRuns(rollback)()
	require.True(t, (<-held).won)
}

// Alice wins in a transaction that is given up for the sake of bob, and somebody else
// is faster then: what she was told in that transaction is worth nothing.
func TestClaimThatWonInATransactionThatWasGivenUpHasNotWon(t *testing.T) {
	s := newScene(t)
	quota := store.Quota{Max: 9}
	claims := map[string]*claimed{"alice": {}, "bob": {}}
	var calls []func()
	for actor, c := range claims {
		d := draft(store.Token{byte(len(actor))})
		d.Actor, d.Quotas = actor, []store.Quota{quota}
		calls = append(calls, func() { c.won, c.held, c.err = s.engine.Claim(t.Context(), d) })
	}
	s.rivalRuns(begin, strings.Replace(insert, "alice", "bob", 1))()
	faster := s.db.Conn(t)
	_, err := faster.Exec(t.Context(), `SET synchronous_commit = off`)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() { defer close(done); s.engine.GatherWithin("acme", "create-order", calls...) }()
	s.waits()

	inserted, err := faster.Exec(t.Context(), insert+` ON CONFLICT DO NOTHING`)

	require.NoError(t, err)
	s.rivalRuns(rollback)()
	<-done
	require.NoError(t, claims["alice"].err)
	require.Equal(t, inserted.RowsAffected() == 0, claims["alice"].won)
	require.True(t, claims["bob"].won)
}

// Claims of all kinds on two instances: quotas of actors and of the tenant, none, and
// the same keys in whatever order. Releases, which make claims wait too, come in between.
func TestClaimsWithQuotasNeverDeadlock(t *testing.T) {
	const rounds, keys = 10, 48
	db := pgtest.New(t)
	db.Set(t, "deadlock_timeout", "5ms") // sooner than a batch gives up waiting
	instances := []*scene{newSceneWith(t, db, patient(db)), newSceneWith(t, db, patient(db))}
	limits := [][]store.Quota{
		nil,
		{{Max: keys}, {Max: 2 * rounds * keys, Window: ages}},
		{{Max: keys, PerTenant: true}, {Max: keys}},
	}
	for round := range rounds {
		var all sync.WaitGroup
		for i, s := range instances {
			for k := range keys {
				d := draft(store.Token{byte(i + 1), byte(round), byte(k)})
				d.Actor, d.Key, d.Quotas = fmt.Sprint("actor ", k%5), fmt.Sprint("key ", k/2), limits[(k+i)%3]
				all.Go(func() {
					won, _, err := s.engine.Claim(t.Context(), d)
					if won {
						err = s.engine.Release(t.Context(), d.Identity, d.Token)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
	}
	require.Zero(t, instances[0].records())
	for _, s := range instances {
		require.NoError(t, s.engine.Close()) // a session tells what it did when it ends, at the latest
	}
	require.Zero(t, pgtest.Get[int](t, db, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`))
}

// A route without quotas pays nothing for those of others.
func TestClaimWithoutQuotasLeavesTheirTablesAlone(t *testing.T) {
	s := newScene(t)
	s.rivalRuns(begin, `LOCK TABLE idempotency_quotas, idempotency_slots IN ACCESS EXCLUSIVE MODE`)()
	won, _, err := s.engine.Claim(timely(t), draft(rightToken))
	require.NoError(t, err)
	require.True(t, won)
	require.NoError(t, s.engine.Complete(timely(t), identity, rightToken, *answer(ample)))
}
