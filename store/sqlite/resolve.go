package sqlite

import (
	"context"
	"encoding/json"
	"time"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// resolveCompleted settles an unknown outcome by somebody else's decision. The
// new token fences its claimant off.
const resolveCompleted = `
UPDATE idempotency_records
SET state = 'completed', settled_at = ` + now + `, claim_token = ?6,
	unknown_since = NULL, reason = NULL, verify_at = NULL, probing_until = NULL,
	status = ?7, resource = ?8, response_header = ?9, response_body = ?10,
	replay_until = ` + now + ` + ?11,
	keep_until = CASE WHEN ?12 > 0 THEN ` + now + ` + ?11 + ?12 END
WHERE tenant = ?1 AND actor = ?2 AND operation = ?3 AND key = ?4
	AND claim_token = ?5 AND state = 'unknown'`

const resolveReleased = `
DELETE FROM idempotency_records
WHERE tenant = ?1 AND actor = ?2 AND operation = ?3 AND key = ?4
	AND claim_token = ?5 AND state = 'unknown'`

const addAudit = `
INSERT INTO idempotency_audit (at, tenant, actor, operation, key, decided_by, reason, from_state, to_state, status)
VALUES (` + now + `, ?1, ?2, ?3, ?4, ?5, ?6, 'unknown', ?7, ?8)`

// Resolve implements store.Engine.
func (e *Engine) Resolve(ctx context.Context, id store.Identity, token, newToken store.Token, r store.Resolution) error {
	held := []any{id.Tenant, id.Actor, id.Operation, id.Key}
	if r.Completion == nil {
		return e.transition(ctx, "releasing unknown record",
			step{resolveReleased, append(held, token[:])},
			step{addAudit, append(held, r.By, r.Reason, "", nil)},
		)
	}
	header, body := encodeResponse(r.Completion.Response)
	return e.transition(ctx, "resolving record",
		step{resolveCompleted, append(held, token[:], newToken[:],
			r.Completion.Status, orNull(r.Completion.Resource), header, body,
			milliseconds(r.Completion.ReplayFor), milliseconds(r.Completion.KeepFor))},
		step{addAudit, append(held, r.By, r.Reason, string(store.Completed), r.Completion.Status)},
	)
}

// dueUnknown finds what takeForProbe then takes, one by one: there is one writer,
// and what somebody else took in between is left out.
const dueUnknown = `
SELECT tenant, actor, operation, key, ` + recordColumns + `
FROM idempotency_records
WHERE verify_at <= ` + now + ` AND state = 'unknown'
	AND operation IN (SELECT value FROM json_each(?1))
	AND (probing_until IS NULL OR probing_until <= ` + now + `)
ORDER BY verify_at LIMIT ?2`

// TakeUnknown implements store.Engine.
func (e *Engine) TakeUnknown(ctx context.Context, operations []string, hold time.Duration, limit int) ([]*store.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	list, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	due, err := e.list(ctx, "finding unknown records", dueUnknown, string(list), limit)
	if err != nil {
		return nil, err
	}
	var taken []*store.Record
	for _, record := range due {
		switch err := e.TakeForProbe(ctx, record.Identity, record.Token, hold); err {
		case nil:
			record.Verifications++
			taken = append(taken, record)
		case store.ErrNotHeld:
		default:
			return taken, err
		}
	}
	return taken, nil
}

const takeForProbe = `
UPDATE idempotency_records
SET probing_until = ` + now + ` + ?6, verifications = coalesce(verifications, 0) + 1
WHERE tenant = ?1 AND actor = ?2 AND operation = ?3 AND key = ?4
	AND claim_token = ?5 AND state = 'unknown' AND (probing_until IS NULL OR probing_until <= ` + now + `)`

// TakeForProbe implements store.Engine.
func (e *Engine) TakeForProbe(ctx context.Context, id store.Identity, token store.Token, hold time.Duration) error {
	return e.transition(ctx, "taking unknown record", step{takeForProbe, []any{
		id.Tenant, id.Actor, id.Operation, id.Key, token[:], milliseconds(hold),
	}})
}

const putOff = `
UPDATE idempotency_records
SET probing_until = NULL, verify_at = CASE WHEN ?6 >= 0 THEN ` + now + ` + ?6 END
WHERE tenant = ?1 AND actor = ?2 AND operation = ?3 AND key = ?4
	AND claim_token = ?5 AND state = 'unknown'`

// PutOff implements store.Engine.
func (e *Engine) PutOff(ctx context.Context, id store.Identity, token store.Token, delay time.Duration) error {
	return e.transition(ctx, "putting verification off", step{putOff, []any{
		id.Tenant, id.Actor, id.Operation, id.Key, token[:], milliseconds(delay),
	}})
}
