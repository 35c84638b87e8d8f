package sqlite

import (
	"context"
	"database/sql"
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
INSERT INTO idempotency_audit (at, tenant, actor, operation, key, decision, decided_by, reason, from_state, to_state, status)
VALUES (` + now + `, ?1, ?2, ?3, ?4, ?5, ?6, ?7, 'unknown', ?8, ?9)`

// decided asks the audit whether the decision was made, by an earlier try.
const decided = `
SELECT 1 FROM idempotency_audit
WHERE tenant = ?1 AND actor = ?2 AND operation = ?3 AND key = ?4 AND decision = ?5`

// Resolve implements store.Engine.
func (e *Engine) Resolve(ctx context.Context, id store.Identity, token, newToken store.Token, r store.Resolution) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	of := func(args ...any) []any {
		return append([]any{id.Tenant, id.Actor, id.Operation, id.Key}, args...)
	}
	op := "releasing unknown record"
	resolve := step{resolveReleased, of(token[:])}
	record := step{addAudit, of(newToken[:], r.By, r.Reason, "", nil)}
	if c := r.Completion; c != nil {
		header, body := c.Response.Encode()
		op = "resolving record"
		resolve = step{resolveCompleted, of(token[:], newToken[:],
			c.Status, orNull(c.Resource), header, body,
			milliseconds(c.ReplayFor), milliseconds(c.KeepFor))}
		record = step{addAudit, of(newToken[:], r.By, r.Reason, string(store.Completed), c.Status)}
	}
	notHeld := e.transition(ctx, op, resolve, record)
	if notHeld != store.ErrNotHeld {
		return notHeld
	}
	err := e.each(ctx, op, func(*sql.Rows) error {
		notHeld = nil // the decision is there
		return nil
	}, decided, of(newToken[:])...)
	if err != nil {
		return err
	}
	return notHeld
}

// dueUnknown finds what takeDue then takes, one by one: there is one writer, and
// what somebody else took in between is left out.
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
		switch err := e.take(ctx, takeDue, record.Identity, record.Token, hold, record.Verifications); err {
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

// takeDue leaves out also what somebody took and gave back since it was found.
const takeDue = takeForProbe + `
	AND verify_at <= ` + now + ` AND coalesce(verifications, 0) = ?7`

// TakeForProbe implements store.Engine.
func (e *Engine) TakeForProbe(ctx context.Context, id store.Identity, token store.Token, hold time.Duration) error {
	return e.take(ctx, takeForProbe, id, token, hold)
}

func (e *Engine) take(ctx context.Context, sql string, id store.Identity, token store.Token, hold time.Duration, more ...any) error {
	return e.transition(ctx, "taking unknown record", step{sql, append([]any{
		id.Tenant, id.Actor, id.Operation, id.Key, token[:], milliseconds(hold),
	}, more...)})
}

const putOff = `
UPDATE idempotency_records
SET probing_until = CASE WHEN ?6 < 1000 THEN NULL ELSE ` + now + ` + 1000 END, -- store.ProbeGap
	verify_at = ` + now + ` + ?6 -- NULL: never
WHERE tenant = ?1 AND actor = ?2 AND operation = ?3 AND key = ?4
	AND claim_token = ?5 AND state = 'unknown'`

// PutOff implements store.Engine.
func (e *Engine) PutOff(ctx context.Context, id store.Identity, token store.Token, delay time.Duration) error {
	var after any
	if delay >= 0 { // also a nanosecond below it, which is no millisecond
		after = milliseconds(delay)
	}
	return e.transition(ctx, "putting verification off", step{putOff, []any{
		id.Tenant, id.Actor, id.Operation, id.Key, token[:], after,
	}})
}
