package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// With one writer, a claim with quotas needs no locks: it is one job, whose first
// statement looks at what is counted and inserts, or does not.

// slots of a scope are an upper bound, which costs a look at the index, of
// executingSlots, which are to be believed. CROSS JOIN begins with the slots, which
// are few: SQLite would read all records of the actor, or of the tenant.
const (
	slots = `
	SELECT count(*) FROM idempotency_slots s WHERE s.tenant = ?1 AND s.operation = ?3`
	executingSlots = `
	SELECT count(*) FROM idempotency_slots s CROSS JOIN idempotency_records r USING (tenant, operation, actor, key, claim_token)
	WHERE s.tenant = ?1 AND s.operation = ?3 AND r.state = 'executing'`
)

// exceeded are the quotas in the way of a claim. ?2 is the actor, ?12 the list of
// quotas: subject, length of the window, and how many it allows.
const exceeded = `
SELECT l.position, CASE WHEN l.period > 0 THEN q.window_end - ` + now + ` END AS remaining
FROM (SELECT key AS position, value ->> 0 AS actor, value ->> 1 AS period, value ->> 2 AS most FROM json_each(?12)) l
LEFT JOIN idempotency_quotas q ON q.tenant = ?1 AND q.operation = ?3 AND q.actor = l.actor AND q.period = l.period
	AND q.window_end > ` + now + `
WHERE CASE
	WHEN l.period > 0 THEN l.most <= coalesce(q.used, 0)
	WHEN l.actor = '' THEN l.most <= (` + slots + `) AND l.most <= (` + executingSlots + `)
	ELSE l.most <= (` + slots + ` AND s.actor = ?2) AND l.most <= (` + executingSlots + ` AND s.actor = ?2) END
ORDER BY remaining DESC NULLS LAST, l.position`

const claimWithin = `
INSERT INTO idempotency_records (
	tenant, actor, operation, key, state, claim_token,
	fingerprint_algorithm, fingerprint_version, fingerprint, fingerprint_members,
	claimed_at, lease_until, natural_key)
SELECT ?1, ?2, ?3, ?4, 'executing', ?5, ?6, ?7, ?8, ?9, ` + now + `, ` + now + ` + ?10, ?11
WHERE NOT EXISTS (` + exceeded + `)
ON CONFLICT (tenant, actor, operation, key) DO NOTHING
ON CONFLICT (tenant, operation, natural_key) WHERE natural_key IS NOT NULL DO NOTHING`

// countNewKey counts in the window that the row has, if that is the later one: the
// clock may have been set back.
const countNewKey = `
INSERT INTO idempotency_quotas AS q (tenant, operation, actor, period, window_end, used)
VALUES (?1, ?2, ?3, ?4, (` + now + ` / ?4 + 1) * ?4, 1)
ON CONFLICT (tenant, operation, actor, period) DO UPDATE SET
	window_end = max(q.window_end, excluded.window_end),
	used = CASE WHEN q.window_end < excluded.window_end THEN 1 ELSE q.used + 1 END`

const takeSlot = `
INSERT OR REPLACE INTO idempotency_slots (tenant, operation, actor, key, claim_token, lease_until)
VALUES (?1, ?2, ?3, ?4, ?5, ` + now + ` + ?6)`

const notExecuting = `NOT EXISTS (
	SELECT 1 FROM idempotency_records r
	WHERE r.tenant = s.tenant AND r.actor = s.actor AND r.operation = s.operation AND r.key = s.key
		AND r.claim_token = s.claim_token AND r.state = 'executing')`

// Stale slots would be counted through by every claim after this one.
const (
	freeSlotsOfActor = `
DELETE FROM idempotency_slots AS s WHERE s.tenant = ?1 AND s.operation = ?2 AND s.actor = ?3 AND ` + notExecuting
	freeSlotsOfTenant = `
DELETE FROM idempotency_slots AS s WHERE s.tenant = ?1 AND s.operation = ?2 AND ` + notExecuting
)

// claimWithinSteps are the job of a claim with quotas.
func claimWithinSteps(draft store.Draft) []step {
	steps := []step{{claimWithin, append(claimArgs(draft), quotaList(draft))}}
	executing, ofTenant := false, false
	for _, q := range draft.Quotas {
		if q.Window == 0 {
			executing, ofTenant = true, ofTenant || q.PerTenant
			continue
		}
		steps = append(steps, step{countNewKey, []any{draft.Tenant, draft.Operation, q.Subject(draft.Scope), milliseconds(q.Window)}})
	}
	if !executing {
		return steps
	}
	steps = append(steps, step{takeSlot, []any{
		draft.Tenant, draft.Operation, draft.Actor, draft.Key, draft.Token[:], milliseconds(draft.Lease),
	}})
	// Last, since a step that moves nothing is the end of its job.
	if ofTenant {
		return append(steps, step{freeSlotsOfTenant, []any{draft.Tenant, draft.Operation}})
	}
	return append(steps, step{freeSlotsOfActor, []any{draft.Tenant, draft.Operation, draft.Actor}})
}

// quotaList is a list of any length as one parameter.
func quotaList(draft store.Draft) string {
	list := make([][3]any, len(draft.Quotas))
	for i, q := range draft.Quotas {
		list[i] = [3]any{q.Subject(draft.Scope), milliseconds(q.Window), q.Max}
	}
	encoded, err := json.Marshal(list)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(encoded)
}

// quotaExceeded returns the quota that was in the claim's way, as an error; nil if
// there is none any more.
func (e *Engine) quotaExceeded(ctx context.Context, draft store.Draft) error {
	args := make([]any, 12)
	args[0], args[1], args[2], args[11] = draft.Tenant, draft.Actor, draft.Operation, quotaList(draft)
	var inTheWay *store.QuotaExceededError
	err := e.each(ctx, "reading quotas", func(rows *sql.Rows) error {
		var position int
		var remaining sql.NullInt64
		if err := rows.Scan(&position, &remaining); err != nil || inTheWay != nil {
			return err
		}
		inTheWay = &store.QuotaExceededError{Quota: draft.Quotas[position], RetryAfter: store.RetryExecuting}
		if remaining.Valid {
			inTheWay.RetryAfter = time.Duration(remaining.Int64) * time.Millisecond
		}
		return nil
	}, exceeded, args...)
	if err == nil && inTheWay != nil {
		err = inTheWay
	}
	return err
}

const (
	purgeWindows = `
DELETE FROM idempotency_quotas WHERE (tenant, operation, actor, period) IN (
	SELECT tenant, operation, actor, period FROM idempotency_quotas
	WHERE window_end <= ` + now + ` ORDER BY window_end LIMIT ?1)`

	purgeSlots = `
DELETE FROM idempotency_slots WHERE (tenant, operation, actor, key, claim_token) IN (
	SELECT tenant, operation, actor, key, claim_token FROM idempotency_slots AS s
	WHERE s.lease_until <= ` + now + ` AND ` + notExecuting + `
	ORDER BY s.lease_until LIMIT ?1)`
)

// PurgeQuotas implements store.Engine.
func (e *Engine) PurgeQuotas(ctx context.Context, limit int) (int, error) {
	windows, err := e.sweep(ctx, "purging quotas", purgeWindows, limit)
	if err != nil {
		return windows, err
	}
	slots, err := e.sweep(ctx, "purging quotas", purgeSlots, limit)
	return max(windows, slots), err
}
