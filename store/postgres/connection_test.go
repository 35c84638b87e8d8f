package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// newWiredScene has the engine behind a link that the test can break.
func newWiredScene(t *testing.T) (*scene, *pgtest.Link) {
	t.Helper()
	db := pgtest.New(t)
	link := pgtest.Wire(t, db.DSN)
	config := patient(db)
	config.DSN = link.DSN
	s := newSceneWith(t, db, config)
	t.Cleanup(link.Cut) // before the engine is closed: it need not wait for answers that never come
	return s, link
}

// The commit takes effect, and the connection dies before it is acknowledged.
func TestTransitionWhoseCommitIsNotAcknowledgedIsRecordedOnce(t *testing.T) {
	for name, story := range map[string]struct {
		settle func(*scene, *store.Claim) error
		want   store.State // "" for no record
	}{
		"complete": {
			func(s *scene, c *store.Claim) error { return c.Complete(s.Context(), *answer(ample)) }, store.Completed,
		},
		"mark unknown": {
			func(s *scene, c *store.Claim) error {
				return c.MarkUnknown(s.Context(), store.Doubt{Reason: "timeout"})
			}, store.Unknown,
		},
		"release": {
			func(s *scene, c *store.Claim) error { return c.Release(s.Context()) }, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, link := newWiredScene(t)

			link.LoseReply(commit)
			claim, held, err := s.store.Claim(t.Context(), identity, fingerprint, "", ample)
			require.NoError(t, err, "it is found again by its token")
			require.Nil(t, held)
			require.Equal(t, 1, link.Lost())
			require.Equal(t, 1, s.records())

			link.LoseReply(commit)
			require.NoError(t, story.settle(s, claim))
			require.Equal(t, 2, link.Lost())
			if story.want == "" {
				require.Zero(t, s.records())
				return
			}
			require.Equal(t, 1, s.records())
			require.Equal(t, story.want, s.record().State)
		})
	}
}

// What a client sent before it vanished, the server carries out: the record
// appears when nobody waits for it any more.
func TestClaimThatTakesEffectAfterItsConnectionWasLost(t *testing.T) {
	s, link := newWiredScene(t)
	var claiming <-chan error
	var unproved *store.UnprovedClaimError
	s.play(
		step{"another's record stands in the way", s.rivalRuns(begin, insert)},
		step{"the engine claims", func() {
			claiming = begins(func() error {
				_, _, err := s.store.Claim(t.Context(), identity, fingerprint, "", ample)
				return err
			})
		}},
		step{"its INSERT waits", s.waits},
		step{"the network breaks", link.Cut},
		step{"the claim is not proved", func() {
			err := <-claiming
			require.ErrorAs(t, err, &unproved)
			require.True(t, store.Retryable(err))
		}},
		step{"the other rolls back", s.rivalRuns(rollback)},
		step{"the record appears", func() {
			s.db.WaitFor(t, `SELECT count(*) = 1 FROM idempotency_records`)
		}},
		step{"the network is back", link.Restore},
		step{"nobody else may execute", func() {
			claim, held, err := s.store.Claim(t.Context(), identity, fingerprint, "", ample)
			require.NoError(t, err)
			require.Nil(t, claim)
			require.Equal(t, store.Executing, held.State)
		}},
		step{"the claim's release reopens the key", func() {
			require.NoError(t, unproved.Release(t.Context()))
			claim, _, err := s.store.Claim(t.Context(), identity, fingerprint, "", ample)
			require.NoError(t, err)
			require.NotNil(t, claim)
		}},
	)
}

func TestDatabaseThatIsDownIsUnavailableAndThenServesAgain(t *testing.T) {
	s, link := newWiredScene(t)
	claim, _, err := s.store.Claim(t.Context(), identity, fingerprint, "", ample)
	require.NoError(t, err)

	link.Cut()
	err = claim.Complete(timely(t), *answer(ample))
	var failed *store.EngineError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, store.Unavailable, failed.Failure)

	link.Restore()
	require.NoError(t, claim.Complete(t.Context(), *answer(ample)))
	require.Equal(t, store.Completed, s.record().State)
}

// A server that accepts what it is sent and says nothing must not hold a request
// for longer than the store may take.
func TestDatabaseThatIsSilentIsUnavailableWhenTheCallsTimeIsUp(t *testing.T) {
	db := pgtest.New(t)
	link := pgtest.Wire(t, db.DSN)
	config := patient(db)
	config.DSN, config.LockTimeout, config.Timeout = link.DSN, 100*time.Millisecond, time.Second
	s := newSceneWith(t, db, config)

	link.HoldReplies()
	_, err := s.engine.Read(timely(t), identity)

	var failed *store.EngineError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, store.Unavailable, failed.Failure)
	require.NoError(t, t.Context().Err())

	link.Cut()
	link.Restore()
	_, err = s.engine.Read(t.Context(), identity)
	require.ErrorIs(t, err, store.ErrNoRecord)
}

func TestServerThatEndsTheSessionsIsUnavailableForTheCallUnderWay(t *testing.T) {
	s := newScene(t)
	var reading <-chan error
	s.play(
		step{"a record is executing", func() { s.has(ample, nil) }},
		step{"somebody locks it", s.rivalRuns(begin, lock)},
		step{"the engine reads it", func() {
			reading = begins(func() error { _, err := s.engine.Read(t.Context(), identity); return err })
		}},
		step{"it waits", s.waits},
		step{"an administrator ends the session", func() {
			s.db.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted`)
		}},
		step{"the call fails, and may be repeated", func() {
			err := <-reading
			require.True(t, store.Retryable(err), err)
		}},
		step{"the lock is gone", s.rivalRuns(rollback)},
		step{"the next call is served", func() { require.Equal(t, store.Executing, s.record().State) }},
	)
}
