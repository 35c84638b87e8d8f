package postgres_test

import (
	"context"
	"crypto/sha256"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
)

// scene is what an interleaving is played on: the engine on the one side, on
// the other a rival whose transactions the test holds open for as long as it
// likes.
type scene struct {
	*testing.T
	db     *pgtest.DB
	engine *postgres.Engine
	store  *store.Store
	rival  *pgx.Conn
}

// patient waits for locks longer than any test does.
func patient(db *pgtest.DB) postgres.Config {
	return postgres.Config{DSN: db.DSN, Timeout: time.Minute, LockTimeout: time.Minute}
}

func newScene(t *testing.T) *scene {
	t.Helper()
	db := pgtest.New(t)
	return newSceneWith(t, db, patient(db))
}

func newSceneWith(t *testing.T, db *pgtest.DB, config postgres.Config) *scene {
	t.Helper()
	engine := open(t, config)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	// Made after the engine, so that it is closed, and its locks are gone, before it.
	return &scene{T: t, db: db, engine: engine, store: store.New(engine), rival: db.Conn(t)}
}

// isolations are what a role's default can be. READ UNCOMMITTED is READ COMMITTED.
var isolations = []string{"read committed", "repeatable read", "serializable"}

func onEveryIsolation(t *testing.T, tell func(*testing.T, *scene)) {
	db := pgtest.New(t)
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			db.Empty(t)
			db.Set(t, "default_transaction_isolation", isolation)
			tell(t, newSceneWith(t, db, patient(db)))
		})
	}
}

// step is one move in an interleaving, with the name by which a failing test
// tells how far it came.
type step struct {
	name string
	do   func()
}

func (s *scene) play(steps ...step) {
	s.Helper()
	for n, step := range steps {
		s.Logf("%d. %s", n+1, step.name)
		step.do()
	}
}

// rivalRuns runs statements in the rival's session.
func (s *scene) rivalRuns(statements ...string) func() {
	return func() {
		s.Helper()
		for _, sql := range statements {
			_, err := s.rival.Exec(s.Context(), sql)
			require.NoError(s, err, sql)
		}
	}
}

// waits requires that one session waits for a lock, so that the call before has
// come to where the rival stands in its way.
func (s *scene) waits() { s.Helper(); s.db.WaitForLockWait(s, 1) }

// claimed is what a claim comes to.
type claimed struct {
	won  bool
	held *store.Record
	err  error
}

// claims begins a claim of the engine which is not waited for.
func (s *scene) claims(token store.Token) <-chan claimed {
	result := make(chan claimed, 1)
	go func() {
		var c claimed
		c.won, c.held, c.err = s.engine.Claim(s.Context(), draft(token))
		result <- c
	}()
	return result
}

// begins starts any other call which is not waited for.
func begins(call func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- call() }()
	return result
}

// has requires that the record was claimed, and completed if an answer is given.
func (s *scene) has(lease time.Duration, completion *store.Completion) {
	s.Helper()
	d := draft(rightToken)
	d.Lease = lease
	won, _, err := s.engine.Claim(s.Context(), d)
	require.NoError(s, err)
	require.True(s, won)
	if completion != nil {
		require.NoError(s, s.engine.Complete(s.Context(), identity, rightToken, *completion))
	}
}

func (s *scene) record() *store.Record {
	s.Helper()
	record, err := s.engine.Read(s.Context(), identity)
	require.NoError(s, err)
	return record
}

// records counts the rows, whatever they hold.
func (s *scene) records() int {
	s.Helper()
	return pgtest.Get[int](s, s.db, `SELECT count(*) FROM idempotency_records`)
}

const (
	over  = -time.Hour
	ample = time.Hour
)

var (
	identity = store.Identity{
		Scope: store.Scope{Tenant: "acme", Actor: "alice", Operation: "create-order"},
		Key:   "K1",
	}
	fingerprint = store.Fingerprint{Algorithm: 1, Version: "orders/v1", Sum: sha256.Sum256([]byte("order"))}

	rightToken, otherToken = store.Token{1}, store.Token{2}
)

func draft(token store.Token) store.Draft {
	return store.Draft{Identity: identity, Fingerprint: fingerprint, Token: token, Lease: ample}
}

func answer(replayFor time.Duration) *store.Completion {
	return &store.Completion{
		Status:    http.StatusCreated,
		Resource:  "/orders/1",
		Response:  &store.Response{Header: http.Header{"Location": {"/orders/1"}}, Body: []byte(`{"id":1}`)},
		ReplayFor: replayFor,
	}
}

// What the rival does, as another instance would.
const (
	begin    = `BEGIN ISOLATION LEVEL READ COMMITTED`
	commit   = `COMMIT`
	rollback = `ROLLBACK`

	insert = `INSERT INTO idempotency_records (tenant, actor, operation, key, state, claim_token,
			fingerprint_algorithm, fingerprint_version, fingerprint, claimed_at, lease_until)
		VALUES ('acme', 'alice', 'create-order', 'K1', 'executing', '09000000-0000-0000-0000-000000000000',
			1, 'orders/v1', sha256('order'), now(), now() + interval '1 hour')`
	complete = `WITH completed AS (UPDATE idempotency_records SET state = 'completed', settled_at = now(), status = 201,
			resource = '/orders/1', replay_until = now() + interval '1 hour'` + withResponse
	withResponse = ` RETURNING claim_token, tenant)
		INSERT INTO idempotency_responses (claim_token, tenant, header, body)
		SELECT claim_token, tenant, E'Location: /orders/1\r\n', '{"id":1}' FROM completed`
	expire = `WITH expired AS (UPDATE idempotency_records SET state = 'expired' RETURNING claim_token)
		DELETE FROM idempotency_responses WHERE claim_token IN (SELECT claim_token FROM expired)`
	release = `DELETE FROM idempotency_records`
	share   = `SELECT 1 FROM idempotency_records FOR SHARE`
	lock    = `SELECT 1 FROM idempotency_records FOR UPDATE`
)

// timely is a context for calls that must not wait for anybody.
func timely(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}
