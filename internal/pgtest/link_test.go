package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
)

func TestCutEndsConnectionsAndRefusesNewOnes(t *testing.T) {
	db := pgtest.New(t)
	link := pgtest.Wire(t, db.DSN)
	conn := connect(t, link.DSN)
	require.Equal(t, 1, link.Open())

	link.Cut()

	_, err := conn.Exec(t.Context(), `SELECT 1`)
	require.Error(t, err)
	_, err = pgx.Connect(t.Context(), link.DSN)
	require.Error(t, err)
	pgtest.Until(t, "no connection is left", func() bool { return link.Open() == 0 })

	link.Restore()

	_, err = connect(t, link.DSN).Exec(t.Context(), `SELECT 1`)
	require.NoError(t, err)
	require.Equal(t, 1, link.Open())
	require.Greater(t, link.Accepted(), 2, "the refused one was made too")
}

func TestHeldReplyComesAfterRestore(t *testing.T) {
	db := pgtest.New(t)
	db.Exec(t, `CREATE TABLE orders (n int)`)
	link := pgtest.Wire(t, db.DSN)
	conn := connect(t, link.DSN)

	link.HoldReplies()
	answer := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), `INSERT INTO orders VALUES (1)`)
		answer <- err
	}()
	db.WaitFor(t, `SELECT count(*) = 1 FROM orders`)
	require.Empty(t, answer, "the row is there, and the client does not know")

	link.Restore()
	require.NoError(t, <-answer)
}

func TestHeldReplyIsLostByCut(t *testing.T) {
	db := pgtest.New(t)
	db.Exec(t, `CREATE TABLE orders (n int)`)
	link := pgtest.Wire(t, db.DSN)
	conn := connect(t, link.DSN)

	link.HoldReplies()
	answer := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), `INSERT INTO orders VALUES (1)`)
		answer <- err
	}()
	db.WaitFor(t, `SELECT count(*) = 1 FROM orders`)
	link.Cut()

	require.Error(t, <-answer)
}

func TestLoseReplyBreaksTheConnectionAfterTheCommit(t *testing.T) {
	for name, statements := range map[string]struct {
		tag string
		sql []string
	}{
		"of a statement on its own":     {"INSERT 0 1", []string{`INSERT INTO orders VALUES (1)`}},
		"of a transaction's commit":     {"COMMIT", []string{`BEGIN`, `INSERT INTO orders VALUES (1)`, `COMMIT`}},
		"of several statements at once": {"INSERT 0 1", []string{`INSERT INTO orders VALUES (1); SELECT 1`}},
	} {
		t.Run(name, func(t *testing.T) {
			db := pgtest.New(t)
			db.Exec(t, `CREATE TABLE orders (n int)`)
			link := pgtest.Wire(t, db.DSN)
			conn, other := connect(t, link.DSN), connect(t, link.DSN)

			link.LoseReply(statements.tag)
			var err error
			for _, sql := range statements.sql {
				require.NoError(t, err, "before the last one")
				_, err = conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
			}

			require.Error(t, err)
			require.Equal(t, 1, link.Lost())
			require.Equal(t, 1, pgtest.Get[int](t, db, `SELECT count(*) FROM orders`))
			_, err = other.Exec(t.Context(), `INSERT INTO orders VALUES (2)`)
			require.NoError(t, err, "other connections are whole, and one answer is lost alone")
		})
	}
}
