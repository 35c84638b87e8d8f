package postgres_test

import (
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
	result := make(chan claimed, 1)
	go func() {
		var c claimed
		c.won, c.held, c.err = s.engine.Claim(s.Context(), d)
		result <- c
	}()
	return result
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

// A route without quotas pays nothing for those of others.
func TestClaimWithoutQuotasLeavesTheirTablesAlone(t *testing.T) {
	s := newScene(t)
	s.rivalRuns(begin, `LOCK TABLE idempotency_quotas, idempotency_slots IN ACCESS EXCLUSIVE MODE`)()
	won, _, err := s.engine.Claim(timely(t), draft(rightToken))
	require.NoError(t, err)
	require.True(t, won)
	require.NoError(t, s.engine.Complete(timely(t), identity, rightToken, *answer(ample)))
}
