package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// rollbackTimeout bounds the tidying up of a connection after an error. One that
// takes longer is closed by the pool instead.
const rollbackTimeout = time.Second

// settings of one transaction, local to it. Parameters: lock and statement timeout.
type settings string

const (
	// durable: on disk before it is acknowledged, if synchronous_commit is as the
	// server comes.
	durable settings = `SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true)`

	// lazy: nothing in the transaction needs to last.
	lazy = durable + `, set_config('synchronous_commit', 'off', true)`

	// byIndex: statements over the members of a batch are planned once, and not for
	// a table that happened to be empty: each row is looked up. CockroachDB, which
	// lacks the joins' settings, has no need of them.
	byIndex = `, set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
	CASE WHEN current_setting('enable_hashjoin', true) = 'on' THEN set_config('enable_hashjoin', 'off', true) END,
	CASE WHEN current_setting('enable_mergejoin', true) = 'on' THEN set_config('enable_mergejoin', 'off', true) END`
)

// limits of one transaction, which the server applies.
type limits struct {
	lock time.Duration // for one lock
	all  time.Duration // for each statement, and from here for all of them together
}

// inTx sends a whole transaction in one round trip and waits for its answers,
// within the limits of a call.
func (e *Engine) inTx(ctx context.Context, op string, settings settings, queue func(*pgx.Batch)) error {
	return e.inTxWithin(ctx, limits{e.config.LockTimeout, e.config.Timeout}, op, settings, queue)
}

// inTxWithin is inTx with limits of its own. The isolation level is pinned,
// because the protocol needs a new snapshot for each statement whatever the role's
// default is (PostgreSQL manual, 13.2.1), and the settings are local to the
// transaction, because a session's would leak through a pooler.
func (e *Engine) inTxWithin(ctx context.Context, limits limits, op string, settings settings, queue func(*pgx.Batch)) error {
	ctx, cancel := context.WithTimeout(ctx, limits.all)
	defer cancel()

	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return e.failed(op, err)
	}
	defer conn.Release()

	batch := &pgx.Batch{}
	batch.Queue(`BEGIN ISOLATION LEVEL READ COMMITTED`)
	batch.Queue(string(settings), milliseconds(limits.lock), milliseconds(limits.all))
	queue(batch)
	batch.Queue(`COMMIT`)
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		rollback(conn)
		return e.failed(op, err)
	}
	return nil
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%dms", max(d.Milliseconds(), 1)) // 0 would switch the limit off
}

// rollback ends the transaction of a failed batch, so that the connection goes
// back to the pool as it came. If it cannot, the pool sees so and closes it.
func rollback(conn *pgxpool.Conn) {
	if pg := conn.Conn().PgConn(); !pg.IsClosed() && pg.TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
		defer cancel()
		_, _ = pg.Exec(ctx, `ROLLBACK`).ReadAll()
	}
}

// failed gives a database error its class, by SQLSTATE (PostgreSQL manual,
// appendix A), and lets errors of the store pass.
func (e *Engine) failed(op string, err error) error {
	var corrupt *store.CorruptError
	if errors.As(err, &corrupt) {
		return fmt.Errorf("%s: %w", op, err)
	}
	failure := store.Unavailable // a network error, or a deadline
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		failure = classify(pg.Code)
		if pg.Code == readOnlyTransaction {
			// The primary that we knew has become a standby: connect anew, and let
			// target_session_attrs find the new one.
			e.pool.Reset()
		}
	}
	return &store.EngineError{Op: op, Failure: failure, Err: err}
}

const (
	lockNotAvailable     = "55P03"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	readOnlyTransaction  = "25006"
	queryCanceled        = "57014" // statement_timeout
	uniqueViolation      = "23505"
	duplicateTable       = "42P07"
	duplicateObject      = "42710" // the table's row type
	undefinedTable       = "42P01"
)

func classify(sqlstate string) store.Failure {
	switch sqlstate {
	case lockNotAvailable:
		return store.Busy
	case serializationFailure, deadlockDetected:
		return store.Conflict
	case readOnlyTransaction, queryCanceled:
		return store.Unavailable
	}
	for _, class := range []string{
		"08", // connection exception
		"40", // transaction rollback
		"53", // insufficient resources
		"57", // operator intervention: shutting down, starting up
		"58", // system error
		"XX", // internal error
	} {
		if strings.HasPrefix(sqlstate, class) {
			return store.Unavailable
		}
	}
	return store.Rejected
}
