package sqlite

import (
	"context"
	"time"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// Each sweep takes those that are due first: the partial index of its state is
// in that order, so that a batch reads and moves no more than its own rows. No
// order is needed against deadlocks, with one writer.

// A lease is over when the clock is past it, not at it: the clock cuts off parts
// of a millisecond, so that a lease counted from it may end that much too early.
const abandon = `
UPDATE idempotency_records
SET state = 'unknown', settled_at = ` + now + `, unknown_since = ` + now + `, verify_at = ` + now + `, reason = 'lease over'
WHERE state = 'executing' AND lease_until < ` + now + ` AND rowid IN (
	SELECT rowid FROM idempotency_records
	WHERE state = 'executing' AND lease_until < ` + now + `
	ORDER BY lease_until LIMIT ?1)`

// Abandon implements store.Engine.
func (e *Engine) Abandon(ctx context.Context, limit int) (int, error) {
	return e.sweep(ctx, "abandoning records", abandon, limit)
}

const expire = `
UPDATE idempotency_records
SET state = 'expired', response_header = NULL, response_body = NULL
WHERE state = 'completed' AND replay_until <= ` + now + ` AND rowid IN (
	SELECT rowid FROM idempotency_records
	WHERE state = 'completed' AND replay_until <= ` + now + `
	ORDER BY replay_until LIMIT ?1)`

// Expire implements store.Engine.
func (e *Engine) Expire(ctx context.Context, limit int) (int, error) {
	return e.sweep(ctx, "expiring records", expire, limit)
}

const purge = `
DELETE FROM idempotency_records
WHERE state = 'expired' AND keep_until <= ` + now + ` AND rowid IN (
	SELECT rowid FROM idempotency_records
	WHERE state = 'expired' AND keep_until <= ` + now + `
	ORDER BY keep_until LIMIT ?1)`

// Purge implements store.Engine.
func (e *Engine) Purge(ctx context.Context, limit int) (int, error) {
	return e.sweep(ctx, "purging records", purge, limit)
}

func (e *Engine) sweep(ctx context.Context, op, sql string, limit int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	moved, err := e.writer.write(ctx, op, sql, limit)
	return int(moved), err
}

const (
	countRecords = `SELECT state, records FROM idempotency_counts`

	ageOfOldestUnknown = `
SELECT coalesce(` + now + ` - min(unknown_since), 0) FROM idempotency_records WHERE state = 'unknown'`
)

// Stats implements store.Engine. Every count is exact.
func (e *Engine) Stats(ctx context.Context) (store.Stats, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	const op = "counting records"

	stats := store.Stats{Records: make(map[store.State]int64, len(store.States))}
	for _, state := range store.States {
		stats.Records[state] = 0
	}
	rows, err := e.readers.QueryContext(ctx, countRecords)
	if err != nil {
		return store.Stats{}, failed(op, err)
	}
	defer rows.Close()
	for rows.Next() {
		var state store.State
		var records int64
		if err := rows.Scan(&state, &records); err != nil {
			return store.Stats{}, failed(op, err)
		}
		stats.Records[state] = records
	}
	if err := rows.Err(); err != nil {
		return store.Stats{}, failed(op, err)
	}

	var age int64
	if err := e.readers.QueryRowContext(ctx, ageOfOldestUnknown).Scan(&age); err != nil {
		return store.Stats{}, failed(op, err)
	}
	stats.OldestUnknown = time.Duration(age) * time.Millisecond
	return stats, nil
}
