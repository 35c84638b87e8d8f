package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// ofHolder finds the record of a claimant. Its parameters are the first of every
// statement that has it.
const ofHolder = `
	WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4 AND claim_token = $5`

// complete settles records that are executing: the routine way, HOT updates. The
// sweeper comes by when the lease is over and learns of the replay window then,
// which is in time, since the window ends later.
const complete = `
WITH completed AS (
	UPDATE idempotency_records r
	SET state = 'completed', settled_at = now(), status = c.status, resource = c.resource,
		replay_until = now() + c.replay_for * interval '1 microsecond',
		keep_until = now() + (c.replay_for + nullif(c.keep_for, 0)) * interval '1 microsecond'
	FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::uuid[],
			$6::smallint[], $7::text[], $8::bytea[], $9::bytea[], $10::bigint[], $11::bigint[])
		AS c (tenant, actor, operation, key, claim_token, status, resource, header, body, replay_for, keep_for)
	WHERE r.tenant = c.tenant AND r.actor = c.actor AND r.operation = c.operation AND r.key = c.key
		AND r.claim_token = c.claim_token AND r.state = 'executing'
		AND r.lease_until > now() AND r.lease_until <= now() + c.replay_for * interval '1 microsecond'
	RETURNING r.claim_token, r.tenant, c.header, c.body
), kept AS (
	INSERT INTO idempotency_responses (claim_token, tenant, header, body)
	SELECT claim_token, tenant, header, body FROM completed WHERE body IS NOT NULL
)
SELECT claim_token FROM completed`

// completeLate settles every other record. The sweeper may have come by already,
// or would come too late, so that the end of the window is put on its list here.
const completeLate = `
WITH completed AS (
	UPDATE idempotency_records
	SET state = 'completed', settled_at = now(), status = $6, resource = $7,
		unknown_since = NULL, reason = NULL, verify_at = NULL, probing_until = NULL,
		replay_until = now() + $10::bigint * interval '1 microsecond',
		keep_until = now() + ($10::bigint + nullif($11::bigint, 0)) * interval '1 microsecond'` + ofHolder + ` AND state IN ('executing', 'unknown')
	RETURNING tenant, actor, operation, key, claim_token, replay_until
), kept AS (
	INSERT INTO idempotency_responses (claim_token, tenant, header, body)
	SELECT claim_token, tenant, $8, $9 FROM completed WHERE $9::bytea IS NOT NULL
)
INSERT INTO idempotency_due (awaits, due_at, tenant, actor, operation, key, claim_token)
SELECT 'window', replay_until, tenant, actor, operation, key, claim_token FROM completed`

// completion is what complete is called with.
type completion struct {
	store.Identity
	token        store.Token
	header, body []byte
	store.Completion
}

// Complete implements store.Engine.
func (e *Engine) Complete(ctx context.Context, id store.Identity, token store.Token, c store.Completion) error {
	header, body := c.Response.Encode()
	settle := e.settle
	if len(body) > maxShared {
		settle = e.alone
	}
	err := settle(ctx, &member{op: "completing record", completion: &completion{id, token, header, body, c}})
	if err == store.ErrNotHeld {
		err = e.alone(ctx, &member{op: "completing record late", sql: completeLate, args: []any{
			id.Tenant, id.Actor, id.Operation, id.Key, [16]byte(token),
			c.Status, orNull(c.Resource), header, body,
			c.ReplayFor.Microseconds(), c.KeepFor.Microseconds(),
		}})
	}
	if err == nil {
		e.seen.Add(id)
	}
	return err
}

// queueCompletions completes many records.
func queueCompletions(batch *pgx.Batch, members []*member) {
	n := len(members)
	var tenants, actors, operations, keys []string
	tokens, statuses, resources := make([][16]byte, n), make([]int16, n), make([]*string, n)
	headers, bodies, replayFor, keepFor := make([][]byte, n), make([][]byte, n), make([]int64, n), make([]int64, n)
	for i, m := range members {
		c := m.completion
		tenants, actors = append(tenants, c.Tenant), append(actors, c.Actor)
		operations, keys = append(operations, c.Operation), append(keys, c.Key)
		tokens[i], statuses[i], resources[i] = c.token, int16(c.Status), orNull(c.Resource)
		headers[i], bodies[i] = c.header, c.body
		replayFor[i], keepFor[i] = c.ReplayFor.Microseconds(), c.KeepFor.Microseconds()
	}
	batch.Queue(complete, tenants, actors, operations, keys, tokens, statuses, resources, headers, bodies, replayFor, keepFor).
		Query(returnedTokens(func(completed map[store.Token]bool) {
			for _, m := range members {
				m.moved = completed[m.completion.token]
			}
		}))
}

const markUnknown = `
UPDATE idempotency_records
	SET state = 'unknown', settled_at = now(), unknown_since = now(), verify_at = now(),
		status = $6, resource = $7, reason = $8` + ofHolder + ` AND state = 'executing'`

// MarkUnknown implements store.Engine.
func (e *Engine) MarkUnknown(ctx context.Context, id store.Identity, token store.Token, d store.Doubt) error {
	return e.settle(ctx, &member{op: "marking record unknown", sql: markUnknown, args: []any{
		id.Tenant, id.Actor, id.Operation, id.Key, [16]byte(token),
		orNull(d.Status), orNull(d.Resource), orNull(d.Reason),
	}})
}

const release = `
DELETE FROM idempotency_records` + ofHolder + ` AND state IN ('executing', 'unknown')`

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
	case !m.moved:
		return store.ErrNotHeld
	}
	return nil
}

// alone makes a transition in a transaction of its own.
func (e *Engine) alone(ctx context.Context, m *member) error {
	err := e.inTx(ctx, m.op, durable+byIndex, func(batch *pgx.Batch) { queueSettlements(batch, []*member{m}) })
	if err == nil && !m.moved {
		return store.ErrNotHeld
	}
	return err
}

// queueSettlements queues the completions in one statement, and every other
// settlement in its own. Of two completions of one record, the first one is made: an
// UPDATE would take either.
func queueSettlements(batch *pgx.Batch, settlements []*member) {
	var completions []*member
	made := make(map[store.Token]bool, len(settlements))
	for _, m := range settlements {
		if m.completion != nil {
			if token := m.completion.token; !made[token] {
				made[token] = true
				completions = append(completions, m)
			}
			continue
		}
		batch.Queue(m.sql, m.args...).Exec(func(tag pgconn.CommandTag) error {
			m.moved = tag.RowsAffected() > 0
			return nil
		})
	}
	if len(completions) > 0 {
		queueCompletions(batch, completions)
	}
}
