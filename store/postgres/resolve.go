package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// resolveCompleted settles an unknown outcome by somebody else's decision. The
// new token fences its claimant off.
const resolveCompleted = `
WITH resolved AS (
	UPDATE idempotency_records
	SET state = 'completed', settled_at = now(), claim_token = $6,
		unknown_since = NULL, reason = NULL, verify_at = NULL, probing_until = NULL,
		status = $9, resource = $10,
		replay_until = now() + $13::bigint * interval '1 microsecond',
		keep_until = now() + ($13::bigint + nullif($14::bigint, 0)) * interval '1 microsecond'
	WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4
		AND claim_token = $5 AND state = 'unknown'
	RETURNING tenant, actor, operation, key, claim_token, replay_until, status
), kept AS (
	INSERT INTO idempotency_responses (claim_token, tenant, header, body)
	SELECT claim_token, tenant, $11, $12 FROM resolved WHERE $12::bytea IS NOT NULL
), listed AS (
	INSERT INTO idempotency_due (awaits, due_at, tenant, actor, operation, key, claim_token)
	SELECT 'window', replay_until, tenant, actor, operation, key, claim_token FROM resolved
), audited AS (
	INSERT INTO idempotency_audit (decision, decided_by, reason, tenant, actor, operation, key, from_state, to_state, status)
	SELECT $6, $7, $8, tenant, actor, operation, key, 'unknown', 'completed', status FROM resolved
)
SELECT count(*) FROM resolved`

const resolveReleased = `
WITH resolved AS (
	DELETE FROM idempotency_records
	WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4
		AND claim_token = $5 AND state = 'unknown'
	RETURNING tenant, actor, operation, key
), audited AS (
	INSERT INTO idempotency_audit (decision, decided_by, reason, tenant, actor, operation, key, from_state, to_state)
	SELECT $6, $7, $8, tenant, actor, operation, key, 'unknown', '' FROM resolved
)
SELECT count(*) FROM resolved`

// decided asks the audit whether the decision was made, now or by an earlier try.
// It is a statement of its own, since the one before it may have waited for that
// earlier try, and its snapshot is older.
const decided = `
SELECT count(*) FROM idempotency_audit
WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4 AND decision = $5`

// Resolve implements store.Engine.
func (e *Engine) Resolve(ctx context.Context, id store.Identity, token, newToken store.Token, r store.Resolution) error {
	op, sql := "releasing unknown record", resolveReleased
	args := []any{
		id.Tenant, id.Actor, id.Operation, id.Key, [16]byte(token),
		[16]byte(newToken), r.By, r.Reason,
	}
	if c := r.Completion; c != nil {
		header, body := c.Response.Encode()
		op, sql = "resolving record", resolveCompleted
		args = append(args, c.Status, orNull(c.Resource), header, body,
			c.ReplayFor.Microseconds(), c.KeepFor.Microseconds())
	}
	var decisions int
	err := e.inTx(ctx, op, durable, func(b *pgx.Batch) {
		b.Queue(sql, args...)
		b.Queue(decided, id.Tenant, id.Actor, id.Operation, id.Key, [16]byte(newToken)).
			QueryRow(func(row pgx.Row) error { return row.Scan(&decisions) })
	})
	if err == nil && decisions == 0 {
		return store.ErrNotHeld
	}
	return err
}

// takeUnknown gives each record to one verifier at a time: SKIP LOCKED between
// those that ask at the same moment, probing_until from then on. The LIMIT stands
// in a WITH, which is run once; a subquery that were joined could be run again for
// each row, and lock others. What an UPDATE returns has no order of its own.
const takeUnknown = `
WITH due AS (
	SELECT tenant, actor, operation, key FROM idempotency_records
	WHERE verify_at <= now() AND state = 'unknown' AND operation = ANY ($1)
		AND (probing_until IS NULL OR probing_until <= now())
	ORDER BY verify_at LIMIT $3
	FOR UPDATE SKIP LOCKED
), taken AS (
	UPDATE idempotency_records r
	SET probing_until = now() + $2::bigint * interval '1 microsecond', verifications = coalesce(r.verifications, 0) + 1
	FROM due
	WHERE r.tenant = due.tenant AND r.actor = due.actor AND r.operation = due.operation AND r.key = due.key
	RETURNING r.*
)
SELECT tenant, actor, operation, key, ` + recordColumns + `
FROM taken ORDER BY verify_at`

// TakeUnknown implements store.Engine.
func (e *Engine) TakeUnknown(ctx context.Context, operations []string, hold time.Duration, limit int) (records []*store.Record, err error) {
	err = e.inTx(ctx, "taking unknown records", durable, func(b *pgx.Batch) {
		queueList(b, &records, takeUnknown, operations, hold.Microseconds(), limit)
	})
	return records, err
}

const takeForProbe = `
UPDATE idempotency_records
	SET probing_until = now() + $6::bigint * interval '1 microsecond', verifications = coalesce(verifications, 0) + 1` + ofHolder + `
		AND state = 'unknown' AND (probing_until IS NULL OR probing_until <= now())`

// TakeForProbe implements store.Engine.
func (e *Engine) TakeForProbe(ctx context.Context, id store.Identity, token store.Token, hold time.Duration) error {
	return e.alone(ctx, &member{op: "taking unknown record", sql: takeForProbe, args: []any{
		id.Tenant, id.Actor, id.Operation, id.Key, [16]byte(token), hold.Microseconds(),
	}})
}

const putOff = `
UPDATE idempotency_records
	SET probing_until = CASE WHEN $6::bigint < 1000000 THEN NULL ELSE now() + interval '1 second' END, -- store.ProbeGap
		verify_at = now() + $6::bigint * interval '1 microsecond' -- NULL: never` + ofHolder + ` AND state = 'unknown'`

// PutOff implements store.Engine.
func (e *Engine) PutOff(ctx context.Context, id store.Identity, token store.Token, delay time.Duration) error {
	var microseconds *int64
	if delay >= 0 { // also a nanosecond below it, which is no microsecond
		microseconds = new(delay.Microseconds())
	}
	return e.alone(ctx, &member{op: "putting verification off", sql: putOff, args: []any{
		id.Tenant, id.Actor, id.Operation, id.Key, [16]byte(token), microseconds,
	}})
}
