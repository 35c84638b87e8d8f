package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// The claims in these stories lose to a row that their INSERT's snapshot cannot
// see: only a statement of its own, begun after the wait, reads it. That works
// under READ COMMITTED alone, so each is told whatever the role's default is.

func TestLoserReadsTheAnswerThatTheWinnerCommits(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		var loser <-chan claimed
		s.play(
			step{"the winner inserts its record", s.rivalRuns(begin, insert)},
			step{"the loser claims", func() { loser = s.claims(otherToken) }},
			step{"the loser waits", s.waits},
			step{"the winner completes and commits", s.rivalRuns(complete, commit)},
			step{"the loser has the answer", func() {
				got := <-loser
				require.NoError(t, got.err)
				require.False(t, got.won)
				require.Equal(t, store.Completed, got.held.State)
				require.Equal(t, fingerprint, got.held.Fingerprint)
				require.Equal(t, answer(0).Response, got.held.Response)
			}},
		)
	})
}

func TestLoserSeesThatTheWinnerIsExecuting(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		var loser <-chan claimed
		s.play(
			step{"the winner inserts its record", s.rivalRuns(begin, insert)},
			step{"the loser claims", func() { loser = s.claims(otherToken) }},
			step{"the loser waits", s.waits},
			step{"the winner commits", s.rivalRuns(commit)},
			step{"the loser has the record", func() {
				got := <-loser
				require.NoError(t, got.err)
				require.False(t, got.won)
				require.Equal(t, store.Executing, got.held.State)
				require.Equal(t, store.Token{9}, got.held.Token)
			}},
		)
	})
}

func TestLoserBecomesTheWinnerIfTheWinnerRollsBack(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		var loser <-chan claimed
		s.play(
			step{"the winner inserts its record", s.rivalRuns(begin, insert)},
			step{"the loser claims", func() { loser = s.claims(otherToken) }},
			step{"the loser waits", s.waits},
			step{"the winner rolls back", s.rivalRuns(rollback)},
			step{"the loser has won", func() {
				require.Equal(t, claimed{won: true}, <-loser)
				require.Equal(t, otherToken, s.record().Token)
			}},
		)
	})
}

func TestClaimWaitsForAReleaseAndWinsAfterIt(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		var next <-chan claimed
		s.play(
			step{"a record is executing", func() { s.has(ample, nil) }},
			step{"its holder releases it", s.rivalRuns(begin, release)},
			step{"the next one claims", func() { next = s.claims(otherToken) }},
			step{"the next one waits", s.waits},
			step{"the release commits", s.rivalRuns(commit)},
			step{"the next one has won", func() {
				require.Equal(t, claimed{won: true}, <-next)
				require.Equal(t, otherToken, s.record().Token)
			}},
		)
	})
}

func TestClaimThatFindsTheRecordReleasedGoesBackToTheClaim(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		var next <-chan error
		var claim *store.Claim
		s.play(
			step{"a record is executing", func() { s.has(ample, nil) }},
			step{"its holder locks it", s.rivalRuns(begin, lock)},
			step{"the next one claims, and loses", func() {
				next = begins(func() (err error) {
					claim, _, err = s.store.Claim(t.Context(), identity, fingerprint, "", ample)
					return err
				})
			}},
			step{"it waits to read the record", s.waits},
			step{"the holder releases it", s.rivalRuns(release, commit)},
			step{"the next one has won", func() {
				require.NoError(t, <-next)
				require.NotNil(t, claim)
				require.Equal(t, 1, s.records())
			}},
		)
	})
}

func TestReplayWaitsForACompletionUnderWay(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		var replay <-chan claimed
		s.play(
			step{"a record is executing", func() { s.has(ample, nil) }},
			step{"its holder completes it", s.rivalRuns(begin, complete)},
			step{"a replay claims", func() { replay = s.claims(otherToken) }},
			step{"the replay waits", s.waits},
			step{"the completion commits", s.rivalRuns(commit)},
			step{"the replay has the answer", func() {
				got := <-replay
				require.NoError(t, got.err)
				require.Equal(t, store.Completed, got.held.State)
				require.Equal(t, answer(0).Response, got.held.Response)
			}},
		)
	})
}

func TestTransitionWaitsForAReplayThatHoldsTheRecord(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		var completion <-chan error
		s.play(
			step{"a record is executing", func() { s.has(ample, nil) }},
			step{"a replay reads it", s.rivalRuns(begin, share)},
			step{"its holder completes it", func() {
				completion = begins(func() error {
					return s.engine.Complete(t.Context(), identity, rightToken, *answer(ample))
				})
			}},
			step{"the completion waits", s.waits},
			step{"the replay is done", s.rivalRuns(commit)},
			step{"the completion is done", func() {
				require.NoError(t, <-completion)
				require.Equal(t, store.Completed, s.record().State)
			}},
		)
	})
}

func TestExpiryLeavesOutARecordThatAReplayHolds(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		s.play(
			step{"a record's window is over", func() { s.has(ample, answer(over)) }},
			step{"a replay reads it", s.rivalRuns(begin, share)},
			step{"the expiry passes by, and does not wait", func() {
				moved, err := s.engine.Expire(timely(t), 10)
				require.NoError(t, err)
				require.Zero(t, moved)
				require.Equal(t, 1, pgtest.Get[int](t, s.db, `SELECT count(*) FROM idempotency_responses`))
			}},
			step{"the replay is done", s.rivalRuns(commit)},
			step{"the expiry comes again", func() {
				moved, err := s.engine.Expire(t.Context(), 10)
				require.NoError(t, err)
				require.Equal(t, 1, moved)
			}},
			step{"a tombstone is left", func() {
				require.Equal(t, "expired K1 /orders/1 201", pgtest.Get[string](t, s.db,
					`SELECT concat_ws(' ', state, key, resource, status) FROM idempotency_records`))
				require.Zero(t, pgtest.Get[int](t, s.db, `SELECT count(*) FROM idempotency_responses`))
				require.Equal(t, fingerprint, s.record().Fingerprint)
			}},
		)
	})
}

func TestReplayWaitsForAnExpiryUnderWay(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		var replay <-chan claimed
		s.play(
			step{"a record's window is about to be over", func() { s.has(ample, answer(ample/100)) }},
			step{"another instance expires it", s.rivalRuns(begin, expire)},
			step{"a replay claims", func() { replay = s.claims(otherToken) }},
			step{"the replay waits", s.waits},
			step{"the expiry commits", s.rivalRuns(commit)},
			step{"the replay has the tombstone, and nothing of the response", func() {
				got := <-replay
				require.NoError(t, got.err)
				require.Equal(t, store.Expired, got.held.State)
				require.Nil(t, got.held.Response)
			}},
		)
	})
}

func TestReplayFarFromItsWindowsEndWaitsForNobody(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		s.play(
			step{"a record is completed", func() { s.has(ample, answer(ample)) }},
			step{"somebody locks it", s.rivalRuns(begin, lock)},
			step{"a replay has the answer", func() {
				won, held, err := s.engine.Claim(timely(t), draft(otherToken))
				require.NoError(t, err)
				require.False(t, won)
				require.Equal(t, answer(0).Response, held.Response)
			}},
		)
	})
}

func TestSweepLeavesOutALeaseThatItsHolderIsSettling(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		s.play(
			step{"a record's lease is over", func() { s.has(over, nil) }},
			step{"its holder completes it all the same", s.rivalRuns(begin, complete)},
			step{"the sweep passes by, and does not wait", func() {
				moved, err := s.engine.Abandon(timely(t), 10)
				require.NoError(t, err)
				require.Zero(t, moved)
			}},
			step{"the completion commits", s.rivalRuns(commit)},
			step{"the sweep leaves it alone", func() {
				moved, err := s.engine.Abandon(t.Context(), 10)
				require.NoError(t, err)
				require.Zero(t, moved)
				require.Equal(t, store.Completed, s.record().State)
			}},
		)
	})
}

func TestSweepComesBackForALeaseThatWasLocked(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		s.play(
			step{"a record's lease is over", func() { s.has(over, nil) }},
			step{"its holder begins to complete it", s.rivalRuns(begin, complete)},
			step{"the sweep passes by", func() {
				moved, err := s.engine.Abandon(timely(t), 10)
				require.NoError(t, err)
				require.Zero(t, moved)
			}},
			step{"the holder dies", s.rivalRuns(rollback)},
			step{"the sweep moves it", func() {
				moved, err := s.engine.Abandon(t.Context(), 10)
				require.NoError(t, err)
				require.Equal(t, 1, moved)
				require.Equal(t, store.Unknown, s.record().State)
			}},
		)
	})
}
