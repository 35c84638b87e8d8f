package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// session is what the engine's only connection looks like between two calls.
type session struct {
	pid                                                        int
	transaction                                                byte
	lockTimeout, statementTimeout, synchronousCommit, isolated string
}

func (s *scene) session() session {
	s.Helper()
	conn, err := s.engine.Session(s.Context())
	require.NoError(s, err)
	defer conn.Release()
	now := session{transaction: conn.Conn().PgConn().TxStatus()}
	require.NoError(s, conn.QueryRow(s.Context(), `SELECT pg_backend_pid(), current_setting('lock_timeout'),
			current_setting('statement_timeout'), current_setting('synchronous_commit'), current_setting('transaction_isolation')`).
		Scan(&now.pid, &now.lockTimeout, &now.statementTimeout, &now.synchronousCommit, &now.isolated))
	return now
}

// newSingleScene has an engine with one connection, whose role has settings of
// its own, and which waits for a lock but briefly.
func newSingleScene(t *testing.T) *scene {
	t.Helper()
	db := pgtest.New(t)
	for name, value := range map[string]string{
		"lock_timeout": "41s", "statement_timeout": "43s",
		"synchronous_commit": "local", "default_transaction_isolation": "serializable",
	} {
		db.Set(t, name, value)
	}
	config := patient(db)
	config.MaxConns, config.LockTimeout = 1, 50*time.Millisecond
	return newSceneWith(t, db, config)
}

const idle = 'I'

func TestCallsLeaveTheSessionAsItWas(t *testing.T) {
	s := newSingleScene(t)
	before := s.session()
	require.Equal(t, session{before.pid, idle, "41s", "43s", "local", "serializable"}, before)

	s.has(over, answer(over))
	s.record()
	for _, sweep := range []func() (int, error){
		func() (int, error) { return s.engine.Abandon(t.Context(), 10) },
		func() (int, error) { return s.engine.Expire(t.Context(), 10) },
		func() (int, error) { return s.engine.Purge(t.Context(), 10) },
	} {
		_, err := sweep()
		require.NoError(t, err)
	}
	_, err := s.engine.Stats(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, s.engine.Release(t.Context(), identity, rightToken), store.ErrNotHeld)

	require.Equal(t, before, s.session())
}

func TestLockThatIsNotGrantedInTimeIsBusyAndLeavesNothingBehind(t *testing.T) {
	for name, story := range map[string]struct {
		given []string
		call  func(*scene) error
	}{
		"claim": {
			[]string{begin, insert},
			func(s *scene) error { _, _, err := s.engine.Claim(s.Context(), draft(otherToken)); return err },
		},
		"read": {
			[]string{insert, begin, lock},
			func(s *scene) error { _, err := s.engine.Read(s.Context(), identity); return err },
		},
		"lost claim": {
			[]string{insert, begin, lock},
			func(s *scene) error { _, _, err := s.engine.Claim(s.Context(), draft(otherToken)); return err },
		},
		"complete": {
			[]string{insert, begin, share},
			func(s *scene) error {
				return s.engine.Complete(s.Context(), identity, store.Token{9}, *answer(ample))
			},
		},
		"release": {
			[]string{insert, begin, share},
			func(s *scene) error { return s.engine.Release(s.Context(), identity, store.Token{9}) },
		},
		"claim for a business identity": {
			[]string{begin, insertNatural},
			func(s *scene) error { _, _, err := s.engine.Claim(s.Context(), natural("K2", otherToken)); return err },
		},
		"resolve": {
			[]string{insert, doubt, begin, share},
			func(s *scene) error {
				return s.engine.Resolve(s.Context(), identity, store.Token{9}, otherToken, found)
			},
		},
		"probe": {
			[]string{insert, doubt, begin, share},
			func(s *scene) error { return s.engine.TakeForProbe(s.Context(), identity, store.Token{9}, ample) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSingleScene(t)
			before := s.session()
			s.rivalRuns(story.given...)()

			err := story.call(s)

			var failed *store.EngineError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, store.Busy, failed.Failure)
			require.False(t, store.Retryable(err), "a caller who has waited once is not made to wait again")
			var pg *pgconn.PgError
			require.ErrorAs(t, err, &pg)
			require.Equal(t, "55P03", pg.Code)
			require.Equal(t, before, s.session(), "on the same connection, with no transaction open")

			s.rivalRuns(rollback)()
			require.NoError(t, story.call(s), "the same call works later")
			require.Equal(t, before, s.session())
		})
	}
}

func TestReadOnlySessionIsRefused(t *testing.T) {
	db := pgtest.New(t)
	open(t, patient(db)).Close()
	db.Set(t, "default_transaction_read_only", "on")

	err := opens(t, patient(db))

	require.Error(t, err)
	require.ErrorContains(t, err, "read only", "it says why")
}

// A failover makes a standby of the server that the pool is connected to, and
// ends its sessions.
func TestServerThatBecomesReadOnlyDoesNotArbitrate(t *testing.T) {
	s := newScene(t)
	s.has(ample, nil)
	s.db.Set(t, "default_transaction_read_only", "on")
	s.db.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`)

	claim, held, err := s.store.Claim(timely(t), identity, fingerprint, "", ample)

	require.Nil(t, claim)
	require.Nil(t, held)
	var failed *store.EngineError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, store.Unavailable, failed.Failure)

	s.db.Exec(t, `SET default_transaction_read_only = off`)
	s.db.Exec(t, `ALTER DATABASE `+s.db.Name+` RESET default_transaction_read_only`)
	require.Equal(t, store.Executing, s.record().State, "a primary that takes over is found")
}
