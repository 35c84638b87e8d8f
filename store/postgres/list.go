package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// The oldest unknown outcomes are at the beginning of their own small index. What
// is executing is found by the due list, all that awaits the end of a lease, and
// then sorted. Settled records are read in the order of the primary key, a page at
// a time: where few match, a page reads on until the call's timeout ends it. Each
// page after the first has a condition that an index can begin at, which "or it is
// the first" would not be.
const (
	listUnknown = `
SELECT tenant, actor, operation, key, ` + recordColumns + `
FROM idempotency_records
WHERE unknown_since IS NOT NULL AND state = $1
	AND unknown_since <= now() - $2::bigint * interval '1 microsecond'
	AND ($3 = '' OR tenant = $3) AND ($4 = '' OR operation = $4)`

	unknownAfter = `
	AND (unknown_since, tenant, actor, operation, key) > ($6, $7, $8, $9, $10)`

	unknownPage = `
ORDER BY unknown_since, tenant, actor, operation, key
LIMIT $5`

	// Looked up hint by hint, as in a sweep. A claim makes one hint with this token.
	listExecuting = `
SELECT tenant, actor, operation, key, ` + recordColumns + `
FROM (
	SELECT r.* FROM idempotency_due d
	CROSS JOIN LATERAL (
		SELECT * FROM idempotency_records r
		WHERE r.tenant = d.tenant AND r.actor = d.actor AND r.operation = d.operation AND r.key = d.key
			AND r.claim_token = d.claim_token AND r.state = 'executing'
		LIMIT 1
	) r
	WHERE d.awaits = 'lease'
) executing
WHERE state = $1 AND claimed_at <= now() - $2::bigint * interval '1 microsecond'
	AND ($3 = '' OR tenant = $3) AND ($4 = '' OR operation = $4)`

	// In words that the planner can estimate, the state as a reader is told it.
	listOthers = `
SELECT tenant, actor, operation, key, ` + recordColumns + `
FROM idempotency_records
WHERE (state = $1 AND (state <> 'completed' OR coalesce(replay_until > now(), true))
		OR $1 = 'expired' AND state = 'completed' AND replay_until <= now())
	AND CASE WHEN replay_until <= now() THEN replay_until ELSE coalesce(settled_at, claimed_at) END
		<= now() - $2::bigint * interval '1 microsecond'
	AND ($3 = '' OR tenant = $3) AND ($4 = '' OR operation = $4)`

	othersAfter = `
	AND (tenant, actor, operation, key) > ($6, $7, $8, $9)`

	othersPage = `
ORDER BY tenant, actor, operation, key
LIMIT $5`
)

// List implements store.Engine.
func (e *Engine) List(ctx context.Context, f store.Filter) (records []*store.Record, err error) {
	sql, next, page := listOthers, othersAfter, othersPage
	switch f.State {
	case store.Unknown:
		sql, next, page = listUnknown, unknownAfter, unknownPage
	case store.Executing:
		sql = listExecuting
	}
	args := []any{f.State, f.OlderThan.Microseconds(), f.Tenant, f.Operation, f.Limit}
	if after := f.After; after != nil {
		sql += next
		if f.State == store.Unknown {
			args = append(args, after.SettledAt)
		}
		args = append(args, after.Tenant, after.Actor, after.Operation, after.Key)
	}
	err = e.inTx(ctx, "listing records", lazy, func(b *pgx.Batch) {
		queueList(b, &records, sql+page, args...)
	})
	return records, err
}

// queueList queues a query whose rows are an identity and recordColumns.
func queueList(b *pgx.Batch, records *[]*store.Record, sql string, args ...any) {
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			record, err := scanListed(rows)
			if err != nil {
				return err
			}
			*records = append(*records, record)
		}
		return rows.Err()
	})
}

const audit = `
SELECT at, decided_by, from_state, to_state, status, reason FROM idempotency_audit
WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4
ORDER BY id`

// Audit implements store.Engine.
func (e *Engine) Audit(ctx context.Context, id store.Identity) (entries []store.AuditEntry, err error) {
	err = e.inTx(ctx, "reading audit", lazy, func(b *pgx.Batch) {
		b.Queue(audit, id.Tenant, id.Actor, id.Operation, id.Key).Query(func(rows pgx.Rows) error {
			defer rows.Close()
			for rows.Next() {
				entry := store.AuditEntry{Identity: id}
				var status *int
				if err := rows.Scan(&entry.At, &entry.By, &entry.From, &entry.To, &status, &entry.Reason); err != nil {
					return &store.CorruptError{Detail: "scanning audit", Err: err}
				}
				entry.Status = orZero(status)
				entries = append(entries, entry)
			}
			return rows.Err()
		})
	})
	return entries, err
}
