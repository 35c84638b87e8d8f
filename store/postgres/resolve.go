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
		status = $9, resource = $10, response_header = $11, response_body = $12,
		replay_until = now() + $13::bigint * interval '1 microsecond',
		keep_until = now() + ($13::bigint + nullif($14::bigint, 0)) * interval '1 microsecond'
	WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4
		AND claim_token = $5 AND state = 'unknown'
	RETURNING tenant, actor, operation, key, claim_token, replay_until, status
), listed AS (
	INSERT INTO idempotency_due (awaits, due_at, tenant, actor, operation, key, claim_token)
	SELECT 'window', replay_until, tenant, actor, operation, key, claim_token FROM resolved
), audited AS (
	INSERT INTO idempotency_audit (decided_by, reason, tenant, actor, operation, key, from_state, to_state, status)
	SELECT $7, $8, tenant, actor, operation, key, 'unknown', 'completed', status FROM resolved
)
SELECT count(*) FROM resolved`

const resolveReleased = `
WITH resolved AS (
	DELETE FROM idempotency_records
	WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4
		AND claim_token = $5 AND state = 'unknown'
	RETURNING tenant, actor, operation, key
), audited AS (
	INSERT INTO idempotency_audit (decided_by, reason, tenant, actor, operation, key, from_state, to_state)
	SELECT $6, $7, tenant, actor, operation, key, 'unknown', '' FROM resolved
)
SELECT count(*) FROM resolved`

// Resolve implements store.Engine.
func (e *Engine) Resolve(ctx context.Context, id store.Identity, token, newToken store.Token, r store.Resolution) error {
	held := []any{id.Tenant, id.Actor, id.Operation, id.Key, [16]byte(token)}
	if r.Completion == nil {
		return e.transition(ctx, "releasing unknown record", resolveReleased, append(held, r.By, r.Reason))
	}
	header, body := encodeResponse(r.Completion.Response)
	return e.transition(ctx, "resolving record", resolveCompleted, append(held,
		[16]byte(newToken), r.By, r.Reason,
		r.Completion.Status, orNull(r.Completion.Resource), header, body,
		r.Completion.ReplayFor.Microseconds(), r.Completion.KeepFor.Microseconds(),
	))
}

// takeUnknown gives each record to one verifier at a time: SKIP LOCKED between
// those that ask at the same moment, probing_until from then on.
const takeUnknown = `
UPDATE idempotency_records r
SET probing_until = now() + $2::bigint * interval '1 microsecond', verifications = coalesce(r.verifications, 0) + 1
FROM (
	SELECT tenant, actor, operation, key FROM idempotency_records
	WHERE verify_at <= now() AND state = 'unknown' AND operation = ANY ($1)
		AND (probing_until IS NULL OR probing_until <= now())
	ORDER BY verify_at LIMIT $3
	FOR UPDATE SKIP LOCKED
) due
WHERE r.tenant = due.tenant AND r.actor = due.actor AND r.operation = due.operation AND r.key = due.key
RETURNING r.tenant, r.actor, r.operation, r.key, ` + recordColumns

// TakeUnknown implements store.Engine.
func (e *Engine) TakeUnknown(ctx context.Context, operations []string, hold time.Duration, limit int) (records []*store.Record, err error) {
	err = e.inTx(ctx, "taking unknown records", durable, func(b *pgx.Batch) {
		queueList(b, &records, takeUnknown, operations, hold.Microseconds(), limit)
	})
	return records, err
}

const takeForProbe = `
WITH taken AS (
	UPDATE idempotency_records
	SET probing_until = now() + $6::bigint * interval '1 microsecond', verifications = coalesce(verifications, 0) + 1
	WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4
		AND claim_token = $5 AND state = 'unknown' AND (probing_until IS NULL OR probing_until <= now())
	RETURNING 1
)
SELECT count(*) FROM taken`

// TakeForProbe implements store.Engine.
func (e *Engine) TakeForProbe(ctx context.Context, id store.Identity, token store.Token, hold time.Duration) error {
	return e.transition(ctx, "taking unknown record", takeForProbe, []any{
		id.Tenant, id.Actor, id.Operation, id.Key, [16]byte(token), hold.Microseconds(),
	})
}

const putOff = `
WITH put_off AS (
	UPDATE idempotency_records
	SET probing_until = NULL,
		verify_at = CASE WHEN $6::bigint >= 0 THEN now() + $6::bigint * interval '1 microsecond' END
	WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4
		AND claim_token = $5 AND state = 'unknown'
	RETURNING 1
)
SELECT count(*) FROM put_off`

// PutOff implements store.Engine.
func (e *Engine) PutOff(ctx context.Context, id store.Identity, token store.Token, delay time.Duration) error {
	return e.transition(ctx, "putting verification off", putOff, []any{
		id.Tenant, id.Actor, id.Operation, id.Key, [16]byte(token), delay.Microseconds(),
	})
}
