package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// Each statement of a sweep takes its candidates from the due list, looks at
// the records themselves, and locks those that it may move in key order, leaving
// out what others hold: any number of instances sweep at once, and nobody waits
// for a sweep but the request whose record it moves.
//
// The record of a hint is looked up in a LATERAL with a LIMIT, which is run for
// each hint in turn, by the primary key. A plain join leaves the planner the choice
// of reading the whole table instead, and it takes it where many hints are due.

var (
	abandon = sweepSQL("lease", "r.state = 'executing' AND r.lease_until <= now()", `
	UPDATE idempotency_records r
	SET state = 'unknown', settled_at = now(), unknown_since = now(), verify_at = now(), reason = 'lease over'
	FROM over`, "")

	expire = sweepSQL("window", "r.state = 'completed' AND r.replay_until <= now()", `
	UPDATE idempotency_records r
	SET state = 'expired'
	FROM over`, `, cleared AS (
	DELETE FROM idempotency_responses WHERE claim_token = ANY (ARRAY(SELECT claim_token FROM moved))
)`)

	purge = sweepSQL("tombstone", "r.state = 'expired' AND r.keep_until <= now()", `
	DELETE FROM idempotency_records r
	USING over`, "")
)

// sweepSQL makes the change to the records r that are over, among those whose
// hint awaits what has come, and what follows from it.
func sweepSQL(awaits, isOver, change, follows string) string {
	return `
WITH due AS (
	SELECT r.tenant, r.actor, r.operation, r.key
	FROM idempotency_due d
	CROSS JOIN LATERAL (
		SELECT * FROM idempotency_records r
		WHERE r.tenant = d.tenant AND r.actor = d.actor AND r.operation = d.operation AND r.key = d.key
			AND ` + isOver + `
		LIMIT 1
	) r
	WHERE d.awaits = '` + awaits + `' AND d.due_at <= now()
	ORDER BY d.due_at LIMIT $1
), over AS (
	SELECT r.tenant, r.actor, r.operation, r.key
	FROM idempotency_records r JOIN due USING (tenant, actor, operation, key)
	WHERE ` + isOver + `
	ORDER BY r.tenant, r.actor, r.operation, r.key
	FOR UPDATE OF r SKIP LOCKED
), moved AS (` + change + `
	WHERE r.tenant = over.tenant AND r.actor = over.actor AND r.operation = over.operation AND r.key = over.key
		AND ` + isOver + `
	RETURNING r.claim_token
)` + follows + `
SELECT count(*) FROM moved`
}

// advance moves due hints of one kind on to what their record awaits next, and
// crosses off those whose record awaits nothing: it is gone, claimed anew,
// unknown (which time does not move; a late completion lists itself), or kept
// for ever. A record that is locked just now shows its old state, and its hint
// stays due.
const advance = `
WITH due AS (
	SELECT d.ctid AS hint, d.awaits, d.due_at, r.state, r.lease_until, r.replay_until, r.keep_until
	FROM idempotency_due d
	LEFT JOIN idempotency_records r
		ON r.tenant = d.tenant AND r.actor = d.actor AND r.operation = d.operation AND r.key = d.key
		AND r.claim_token = d.claim_token
	WHERE d.awaits = $1 AND d.due_at <= now()
	ORDER BY d.due_at LIMIT $2
	FOR UPDATE OF d SKIP LOCKED
), next AS (
	SELECT hint, awaits AS awaited, due_at AS was_due,
		CASE state WHEN 'executing' THEN 'lease' WHEN 'completed' THEN 'window' WHEN 'expired' THEN 'tombstone' END AS awaits,
		CASE state WHEN 'executing' THEN lease_until WHEN 'completed' THEN replay_until WHEN 'expired' THEN keep_until END AS due_at
	FROM due
), crossed_off AS (
	DELETE FROM idempotency_due d USING next
	WHERE d.ctid = next.hint AND (next.awaits IS NULL OR next.due_at IS NULL)
	RETURNING 1
), moved_on AS (
	UPDATE idempotency_due d SET awaits = next.awaits, due_at = next.due_at
	FROM next
	WHERE d.ctid = next.hint AND next.due_at IS NOT NULL
		AND (next.awaits, next.due_at) <> (next.awaited, next.was_due)
	RETURNING 1
)
SELECT (SELECT count(*) FROM due), (SELECT count(*) FROM crossed_off) + (SELECT count(*) FROM moved_on)`

// Abandon implements store.Engine.
func (e *Engine) Abandon(ctx context.Context, limit int) (int, error) {
	return e.sweep(ctx, "abandoning records", abandon, "lease", limit)
}

// Expire implements store.Engine.
func (e *Engine) Expire(ctx context.Context, limit int) (int, error) {
	return e.sweep(ctx, "expiring records", expire, "window", limit)
}

// Purge implements store.Engine.
func (e *Engine) Purge(ctx context.Context, limit int) (int, error) {
	return e.sweep(ctx, "purging records", purge, "tombstone", limit)
}

// sweep first moves on every hint whose record has gone on by itself, which is the
// routine, and many more than a batch; what is left is for the transition.
func (e *Engine) sweep(ctx context.Context, op, transition, awaits string, limit int) (moved int, err error) {
	for full := true; full; {
		if full, err = e.advance(ctx, op, awaits, limit); err != nil {
			return 0, err
		}
	}
	err = e.inTx(ctx, op, durable+byIndex, func(b *pgx.Batch) {
		b.Queue(transition, limit).QueryRow(func(row pgx.Row) error { return row.Scan(&moved) })
		b.Queue(advance, awaits, limit)
	})
	return moved, err
}

// advance runs one batch, and reports whether another one is worth it.
func (e *Engine) advance(ctx context.Context, op, awaits string, limit int) (full bool, err error) {
	var due, gone int
	err = e.inTx(ctx, op, durable+byIndex, func(b *pgx.Batch) {
		b.Queue(advance, awaits, limit).QueryRow(func(row pgx.Row) error { return row.Scan(&due, &gone) })
	})
	return due == limit && gone > 0, err
}

// exactBelow is the size of the table up to which states are counted one by one.
const exactBelow = 64 << 20 // bytes

// Counting a large table would read all of it. There, Completed and Expired are
// the planner's estimates; Executing and Unknown have small indexes of their own.
const (
	countUnknown = `
SELECT count(*), coalesce(extract(epoch FROM now() - min(unknown_since)), 0)::float8
FROM idempotency_records WHERE unknown_since IS NOT NULL`

	// A scalar subquery, since a join might read the whole table.
	countExecuting = `
SELECT count(*) FROM idempotency_due d
WHERE d.awaits = 'lease' AND (
	SELECT r.state FROM idempotency_records r
	WHERE r.tenant = d.tenant AND r.actor = d.actor AND r.operation = d.operation AND r.key = d.key
		AND r.claim_token = d.claim_token
) = 'executing'`

	// ANALYZE says how many rows a page has and which share of them each state;
	// a state that is not among its most common values is next to none. Where it
	// never ran, a page is taken to be half full of records of 250 bytes (see
	// the table's fillfactor), and all of them to be completed.
	estimateSettled = `
SELECT v.state, sum(
	pg_relation_size(c.oid)::float8 / current_setting('block_size')::float8
	* CASE WHEN c.relpages > 0 AND c.reltuples > 0 THEN c.reltuples / c.relpages ELSE 16 END
	* CASE WHEN s.tablename IS NULL THEN v.share_unless_analyzed
		ELSE coalesce(s.most_common_freqs[array_position(s.most_common_vals::text::text[], v.state)], 0) END)
FROM pg_class c
CROSS JOIN (VALUES ('completed', 1), ('expired', 0)) v (state, share_unless_analyzed)
LEFT JOIN pg_stats s ON s.schemaname = c.relnamespace::regnamespace::text AND s.tablename = c.relname
	AND s.attname = 'state' AND NOT s.inherited
WHERE c.oid IN (` + tables + `)
GROUP BY v.state`

	tableSize = `SELECT sum(pg_relation_size(oid))::bigint FROM (` + tables + `) t (oid)`

	// tables are that of the records and, if it has any, its partitions.
	tables = `SELECT 'idempotency_records'::regclass UNION ALL
	SELECT inhrelid FROM pg_inherits WHERE inhparent = 'idempotency_records'::regclass`

	// A statement of its own, sent for a small table only: in one with the estimate,
	// the planner costs it for the large table too, and starts JIT and workers for
	// a half that does not run.
	countSettled = `
SELECT state, count(*)::float8 FROM idempotency_records
WHERE state IN ('completed', 'expired') GROUP BY state`
)

// Stats implements store.Engine.
func (e *Engine) Stats(ctx context.Context) (store.Stats, error) {
	stats := store.Stats{Records: map[store.State]int64{}}
	for _, state := range store.States {
		stats.Records[state] = 0
	}
	var size int64
	err := e.inTx(ctx, "counting records", lazy, func(b *pgx.Batch) {
		b.Queue(countUnknown).QueryRow(func(row pgx.Row) error {
			var n int64
			var age float64
			err := row.Scan(&n, &age)
			stats.Records[store.Unknown], stats.OldestUnknown = n, time.Duration(age*float64(time.Second))
			return err
		})
		b.Queue(countExecuting).QueryRow(func(row pgx.Row) error {
			var n int64
			err := row.Scan(&n)
			stats.Records[store.Executing] = n
			return err
		})
		b.Queue(tableSize).QueryRow(func(row pgx.Row) error { return row.Scan(&size) })
		queueSettled(b, estimateSettled, stats)
	})
	if err != nil || size >= e.exactBelow {
		return stats, err
	}
	stats.Records[store.Completed], stats.Records[store.Expired] = 0, 0
	err = e.inTx(ctx, "counting settled records", lazy, func(b *pgx.Batch) { queueSettled(b, countSettled, stats) })
	return stats, err
}

// queueSettled queues a query whose rows are a state and how many records it has.
func queueSettled(b *pgx.Batch, sql string, stats store.Stats) {
	b.Queue(sql).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			var state store.State
			var n float64
			if err := rows.Scan(&state, &n); err != nil {
				return err
			}
			stats.Records[state] = int64(n)
		}
		return rows.Err()
	})
}
