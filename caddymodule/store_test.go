package caddymodule_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
)

// testStore is a gateway's store, seen from the side: the test has a connection of
// its own to it.
type testStore struct {
	directive string // of the global option
	db        *sql.DB
	postgres  *pgtest.DB   // nil for SQLite
	link      *pgtest.Link // what the gateway's connections go through; nil unless wired
	path      string       // of SQLite's file
	past      string       // an SQL expression for a moment that is over
}

// onEveryStore tells a story on each engine.
func onEveryStore(t *testing.T, story func(t *testing.T, s *testStore)) {
	t.Helper()
	t.Parallel()
	for _, engine := range []struct {
		name string
		open func(*testing.T) *testStore
	}{{"sqlite", onSQLite}, {"postgres", onPostgres}} {
		t.Run(engine.name, func(t *testing.T) {
			t.Parallel()
			story(t, engine.open(t))
		})
	}
}

func onSQLite(t *testing.T) *testStore {
	t.Helper()
	file := filepath.Join(shortTempDir(t), "records.db")
	return &testStore{
		directive: "store sqlite " + file,
		db:        connect(t, "sqlite", "file:"+file+"?_pragma=busy_timeout(5000)"),
		path:      file,
		past:      `CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - 1000`,
	}
}

func onPostgres(t *testing.T) *testStore {
	t.Helper()
	return postgresStore(t, pgtest.New(t), nil)
}

// onWiredPostgres is a PostgreSQL whose connections the story can break.
func onWiredPostgres(t *testing.T) *testStore {
	t.Helper()
	db := pgtest.New(t)
	return postgresStore(t, db, pgtest.Wire(t, db.DSN))
}

func postgresStore(t *testing.T, db *pgtest.DB, link *pgtest.Link, options ...string) *testStore {
	t.Helper()
	dsn := db.DSN
	if link != nil {
		dsn = link.DSN
	}
	block := ""
	for _, option := range options {
		block += option + "\n"
	}
	return &testStore{
		directive: fmt.Sprintf("store postgres %q {\n%s\n}", dsn, block),
		db:        connect(t, "pgx", db.DSN),
		postgres:  db,
		link:      link,
		past:      `now() - interval '1 second'`,
	}
}

func connect(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// record is a row as the story looks at it.
type record struct {
	Tenant, Actor, Operation, Key string
	State                         string
	Status                        int
	Resource, Reason              string
	Header, Body                  []byte // nil where the response is not kept
}

func (r record) String() string {
	return fmt.Sprintf("%s/%s/%s/%s %s status=%d resource=%q reason=%q header=%q body=%s",
		r.Tenant, r.Actor, r.Operation, r.Key, r.State, r.Status, r.Resource, r.Reason, r.Header, short(r.Body))
}

// allRecords has a response_header and a response_body from somewhere.
const allRecords = `
SELECT tenant, actor, operation, key, state, coalesce(status, 0), coalesce(resource, ''), coalesce(reason, ''),
	response_header, response_body
FROM %s ORDER BY claimed_at, key`

func (s *testStore) load() (records []record, err error) {
	from := "idempotency_records"
	if s.postgres != nil {
		from += ` LEFT JOIN (SELECT claim_token, header AS response_header, body AS response_body FROM idempotency_responses) p USING (claim_token)`
	}
	rows, err := s.db.QueryContext(context.Background(), fmt.Sprintf(allRecords, from))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r record
		if err := rows.Scan(&r.Tenant, &r.Actor, &r.Operation, &r.Key, &r.State, &r.Status, &r.Resource, &r.Reason, &r.Header, &r.Body); err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, rows.Err()
}

// records are all there are.
func (s *testStore) records(t *testing.T) []record {
	t.Helper()
	records, err := s.load()
	require.NoError(t, err)
	return records
}

// record of a key. There must be one.
func (s *testStore) record(t *testing.T, key string) record {
	t.Helper()
	for _, r := range s.records(t) {
		if r.Key == key {
			return r
		}
	}
	require.FailNow(t, "there is no record of "+key)
	return record{}
}

// state of a key's record; "" if there is none.
func (s *testStore) state(t *testing.T, key string) string {
	t.Helper()
	for _, r := range s.records(t) {
		if r.Key == key {
			return r.State
		}
	}
	return ""
}

// awaitState waits until a key's record is in the state; "" is to be gone.
func (s *testStore) awaitState(t *testing.T, key, state string) {
	t.Helper()
	until(t, fmt.Sprintf("the record of %s is %q", key, state), func() bool { return s.state(t, key) == state })
}

func (s *testStore) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := s.db.ExecContext(t.Context(), sql, args...)
	require.NoError(t, err, sql)
}

// leasesAreOver makes it so: every claimant has had its time.
// responseIsMoved gives one record the response of another.
func (s *testStore) responseIsMoved(t *testing.T, from, to string) {
	t.Helper()
	if s.postgres != nil {
		s.exec(t, `UPDATE idempotency_responses t SET header = f.header, body = f.body FROM idempotency_responses f
			WHERE f.claim_token = (SELECT claim_token FROM idempotency_records WHERE key = $1)
				AND t.claim_token = (SELECT claim_token FROM idempotency_records WHERE key = $2)`, from, to)
		return
	}
	s.exec(t, `UPDATE idempotency_records SET (response_header, response_body) =
		(SELECT response_header, response_body FROM idempotency_records WHERE key = $1) WHERE key = $2`, from, to)
}

func (s *testStore) leasesAreOver(t *testing.T) { s.itIsPast(t, "executing", "lease_until") }

// windowsAreOver makes it so: no stored response is to be replayed any more.
func (s *testStore) windowsAreOver(t *testing.T) { s.itIsPast(t, "completed", "replay_until") }

// tombstonesAreOver makes it so: all have been kept for as long as their route said.
func (s *testStore) tombstonesAreOver(t *testing.T) { s.itIsPast(t, "expired", "keep_until") }

func (s *testStore) itIsPast(t *testing.T, state, column string) {
	t.Helper()
	s.exec(t, fmt.Sprintf(`UPDATE idempotency_records SET %s = %s WHERE state = '%s'`, column, s.past, state))
	if s.postgres != nil {
		s.exec(t, fmt.Sprintf(`UPDATE idempotency_due SET due_at = %s`, s.past))
	}
}

// sessions of gateways on PostgreSQL.
func (s *testStore) sessions(t *testing.T) int {
	t.Helper()
	return s.postgres.Sessions(t) - s.db.Stats().OpenConnections
}
