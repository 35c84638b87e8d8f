package pgtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	one, two := pgtest.New(t), pgtest.New(t)
	one.Exec(t, `CREATE TABLE here (n int)`)

	require.NotEqual(t, one.Name, two.Name)
	require.True(t, pgtest.Get[bool](t, one, `SELECT to_regclass('here') IS NOT NULL`))
	require.True(t, pgtest.Get[bool](t, two, `SELECT to_regclass('here') IS NULL`))
}

func TestDatabaseAndRolesAreGoneAfterTheTest(t *testing.T) {
	watcher := pgtest.New(t)
	var name string
	t.Run("with a session still open in it", func(t *testing.T) {
		db := pgtest.New(t)
		name = db.Name
		db.Exec(t, `CREATE TABLE kept (n int)`)
		stranger, err := pgx.Connect(context.Background(), db.Role(t, "SELECT ON kept"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = stranger.Close(context.Background()) })
		require.Equal(t, 1, db.Sessions(t))
	})

	require.Equal(t, 0, pgtest.Get[int](t, watcher, `SELECT count(*) FROM pg_database WHERE datname = $1`, name))
}

func TestEmptyLeavesNoTable(t *testing.T) {
	db := pgtest.New(t)
	db.Exec(t, `CREATE TABLE parent (n int PRIMARY KEY)`)
	db.Exec(t, `CREATE TABLE "a child" (n int REFERENCES parent)`)

	db.Empty(t)

	require.Equal(t, 0, pgtest.Get[int](t, db, `SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`))
}

func TestSetAppliesToNewSessions(t *testing.T) {
	db := pgtest.New(t)

	db.Set(t, "default_transaction_isolation", "serializable")

	var isolation string
	require.NoError(t, db.Conn(t).QueryRow(t.Context(), `SHOW transaction_isolation`).Scan(&isolation))
	require.Equal(t, "serializable", isolation)
}

func TestRoleMayDoWhatWasGrantedAndNoMore(t *testing.T) {
	db := pgtest.New(t)
	db.Exec(t, `CREATE TABLE orders (n int)`)
	role, err := pgx.Connect(t.Context(), db.Role(t, "SELECT, INSERT ON orders"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = role.Close(context.Background()) })

	_, err = role.Exec(t.Context(), `INSERT INTO orders VALUES (1)`)
	require.NoError(t, err)

	var refused *pgconn.PgError
	_, err = role.Exec(t.Context(), `DELETE FROM orders`)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "42501", refused.Code, "insufficient_privilege")
}

func TestWaitForLockWaitReturnsWhenTheOtherSessionWaits(t *testing.T) {
	db := pgtest.New(t)
	db.Exec(t, `CREATE TABLE orders (n int PRIMARY KEY)`)
	winner, loser := db.Conn(t), db.Conn(t)
	begin(t, winner, `INSERT INTO orders VALUES (1)`)

	lost := make(chan error, 1)
	go func() {
		_, err := loser.Exec(t.Context(), `INSERT INTO orders VALUES (1) ON CONFLICT (n) DO NOTHING`)
		lost <- err
	}()
	db.WaitForLockWait(t, 1)
	require.Empty(t, lost, "it waits for the winner")

	_, err := winner.Exec(t.Context(), `COMMIT`)
	require.NoError(t, err)
	require.NoError(t, <-lost)
	db.WaitForLockWait(t, 0)
}

func begin(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range append([]string{`BEGIN`}, statements...) {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}
