package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// held finds the record of a claimant. Its parameters are the first of every
// statement that has it.
const held = `
	WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4 AND claim_token = $5`

// setCompleted is what completing a record means, of the routine way and of every
// other.
const setCompleted = `
	SET state = 'completed', settled_at = now(),
		status = $6, resource = $7, response_header = $8, response_body = $9,
		replay_until = now() + $10::bigint * interval '1 microsecond',
		keep_until = now() + ($10::bigint + nullif($11::bigint, 0)) * interval '1 microsecond'`

// complete settles a record that is executing: the routine way, a HOT update. The
// sweeper comes by when the lease is over and learns of the replay window then,
// which is in time, since the window ends later.
const complete = `
UPDATE idempotency_records` + setCompleted + held + ` AND state = 'executing'
	AND lease_until > now() AND lease_until <= now() + $10::bigint * interval '1 microsecond'`

// completeLate settles every other record. The sweeper may have come by already,
// or would come too late, so that the end of the window is put on its list here.
const completeLate = `
WITH completed AS (
	UPDATE idempotency_records` + setCompleted + `,
		unknown_since = NULL, reason = NULL, verify_at = NULL, probing_until = NULL` + held + ` AND state IN ('executing', 'unknown')
	RETURNING tenant, actor, operation, key, claim_token, replay_until
)
INSERT INTO idempotency_due (awaits, due_at, tenant, actor, operation, key, claim_token)
SELECT 'window', replay_until, tenant, actor, operation, key, claim_token FROM completed`

// Complete implements store.Engine.
func (e *Engine) Complete(ctx context.Context, id store.Identity, token store.Token, c store.Completion) error {
	header, body := c.Response.Encode()
	args := []any{
		id.Tenant, id.Actor, id.Operation, id.Key, [16]byte(token),
		c.Status, orNull(c.Resource), header, body,
		c.ReplayFor.Microseconds(), c.KeepFor.Microseconds(),
	}
	settle := e.settle
	if len(body) > maxShared {
		settle = e.alone
	}
	err := settle(ctx, &member{op: "completing record", sql: complete, args: args})
	if err == store.ErrNotHeld {
		err = e.alone(ctx, &member{op: "completing record late", sql: completeLate, args: args})
	}
	if err == nil {
		e.settled.add(id)
	}
	return err
}

const markUnknown = `
UPDATE idempotency_records
	SET state = 'unknown', settled_at = now(), unknown_since = now(), verify_at = now(),
		status = $6, resource = $7, reason = $8` + held + ` AND state = 'executing'`

// MarkUnknown implements store.Engine.
func (e *Engine) MarkUnknown(ctx context.Context, id store.Identity, token store.Token, d store.Doubt) error {
	return e.settle(ctx, &member{op: "marking record unknown", sql: markUnknown, args: []any{
		id.Tenant, id.Actor, id.Operation, id.Key, [16]byte(token),
		orNull(d.Status), orNull(d.Resource), orNull(d.Reason),
	}})
}

const release = `
DELETE FROM idempotency_records` + held + ` AND state IN ('executing', 'unknown')`

// Release implements store.Engine.
func (e *Engine) Release(ctx context.Context, id store.Identity, token store.Token) error {
	return e.settle(ctx, &member{op: "releasing record", sql: release, args: []any{
		id.Tenant, id.Actor, id.Operation, id.Key, [16]byte(token),
	}})
}

// settle makes a transition in a batch, or alone if it cannot be there.
func (e *Engine) settle(ctx context.Context, m *member) error {
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()

	switch err := e.writes.join(ctx, m); {
	case err == errApart:
		return e.alone(ctx, m)
	case err != nil:
		return err
	case m.moved == 0:
		return store.ErrNotHeld
	}
	return nil
}

// alone makes a transition in a transaction of its own.
func (e *Engine) alone(ctx context.Context, m *member) error {
	err := e.inTx(ctx, m.op, durable, m.queue)
	if err == nil && m.moved == 0 {
		return store.ErrNotHeld
	}
	return err
}

// queue queues the guarded statement of a settlement.
func (m *member) queue(batch *pgx.Batch) {
	batch.Queue(m.sql, m.args...).Exec(func(tag pgconn.CommandTag) error {
		m.moved = tag.RowsAffected()
		return nil
	})
}
