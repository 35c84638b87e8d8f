package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

const watcher = "pgtest"

// DB is a database that one test has for itself.
type DB struct {
	Name string
	DSN  string // for its owner, who may do everything in it

	// watch is the test's own way in, apart from what is being tested.
	watch *pgxpool.Pool
	roles []string
}

// New makes an empty database, and drops it when the test is over, whoever is
// still connected.
func New(t testing.TB) *DB {
	t.Helper()
	s, err := startServer()
	require.NoError(t, err)

	db := &DB{Name: "idempotency_test_" + strings.ToLower(rand.Text())}
	db.DSN = change(s.dsn, map[string]string{"dbname": db.Name})
	maintain(t, s, "CREATE DATABASE "+db.Name)
	t.Cleanup(func() {
		if db.watch != nil {
			db.watch.Close()
		}
		maintain(t, s, "DROP DATABASE "+db.Name+" WITH (FORCE)")
		for _, role := range db.roles { // now that nothing depends on them
			maintain(t, s, "DROP ROLE "+role)
		}
	})

	db.watch, err = pgxpool.New(context.Background(), change(db.DSN, map[string]string{"application_name": watcher}))
	require.NoError(t, err)
	return db
}

// maintain runs a statement outside of the test's database. It is called in
// cleanups too, when the test's context is over.
func maintain(t testing.TB, s *server, sql string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.dsn)
	require.NoError(t, err, "connecting to the test server")
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	require.NoError(t, err, sql)
}

// Conn opens a session of the test's own, as the owner, and closes it at the
// end. Begin a transaction in it to play the other side of an interleaving.
func (db *DB) Conn(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Exec runs a statement as the owner and returns how many rows it touched.
func (db *DB) Exec(t testing.TB, sql string, args ...any) int64 {
	t.Helper()
	tag, err := db.watch.Exec(t.Context(), sql, args...)
	require.NoError(t, err, sql)
	return tag.RowsAffected()
}

// Get reads the one value that a query of the owner returns.
func Get[T any](t testing.TB, db *DB, sql string, args ...any) T {
	t.Helper()
	var value T
	require.NoError(t, db.watch.QueryRow(t.Context(), sql, args...).Scan(&value), sql)
	return value
}

// Empty drops every table. A test of many parts that need an empty database each
// is done ten times sooner with this than with a new database for each.
func (db *DB) Empty(t testing.TB) {
	t.Helper()
	db.Exec(t, `DO $$
		DECLARE name text;
		BEGIN
			FOR name IN SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
				WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
			LOOP
				EXECUTE 'DROP TABLE IF EXISTS ' || name || ' CASCADE'; -- it may have gone with another
			END LOOP;
		END $$`)
}

// Set changes what new sessions of this database begin with, such as
// default_transaction_isolation.
func (db *DB) Set(t testing.TB, name, value string) {
	t.Helper()
	db.Exec(t, fmt.Sprintf("ALTER DATABASE %s SET %s = %s", db.Name, name, quote(value)))
}

// Role makes a login with the grants and no other rights, and returns its DSN.
// A grant is what stands between GRANT and TO, such as
// "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public".
func (db *DB) Role(t testing.TB, grants ...string) string {
	t.Helper()
	name, password := "idempotency_test_"+strings.ToLower(rand.Text()), rand.Text()
	db.Exec(t, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD %s", name, quote(password)))
	db.roles = append(db.roles, name)
	for _, grant := range grants {
		db.Exec(t, fmt.Sprintf("GRANT %s TO %s", grant, name))
	}
	return change(db.DSN, map[string]string{"user": name, "password": password})
}

// WaitForLockWait waits until n sessions of this database wait for a lock. Only
// then has the statement that a test sent arrived where the test wants it.
func (db *DB) WaitForLockWait(t testing.TB, n int) {
	t.Helper()
	db.WaitFor(t, `SELECT count(DISTINCT pid) = $1 FROM pg_locks
		JOIN pg_stat_activity USING (pid)
		WHERE datname = current_database() AND NOT granted`, n)
}

// WaitFor waits until a query of the owner returns true.
func (db *DB) WaitFor(t testing.TB, sql string, args ...any) {
	t.Helper()
	Until(t, sql, func() bool { return Get[bool](t, db, sql, args...) })
}

// Sessions counts the sessions of this database, but for those that Exec, Get
// and the waiting methods use.
func (db *DB) Sessions(t testing.TB) int {
	t.Helper()
	return Get[int](t, db, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND backend_type = 'client backend' AND application_name <> $1`, watcher)
}

func quote(literal string) string {
	return "'" + strings.ReplaceAll(literal, "'", "''") + "'"
}
