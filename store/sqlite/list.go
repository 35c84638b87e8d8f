package sqlite

import (
	"context"
	"database/sql"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// The oldest unknown outcomes are at the beginning of their own small index. What
// is executing has one too, and is sorted. Settled records are read in the order
// of the key, a page at a time: where few match, a page reads on until the call's
// timeout ends it. Each page after the first has a condition that an index can
// begin at, which "or it is the first" would not be.
const (
	listUnknown = `
SELECT tenant, actor, operation, key, ` + recordColumns + `
FROM idempotency_records
WHERE state = 'unknown' AND state = ?1
	AND unknown_since <= ` + now + ` - ?2
	AND (?3 = '' OR tenant = ?3) AND (?4 = '' OR operation = ?4)`

	unknownAfter = `
	AND (unknown_since, tenant, actor, operation, key) > (?6, ?7, ?8, ?9, ?10)`

	unknownPage = `
ORDER BY unknown_since, tenant, actor, operation, key
LIMIT ?5`

	// Named, since the order alone would have the planner read the whole table.
	listExecuting = `
SELECT tenant, actor, operation, key, ` + recordColumns + `
FROM idempotency_records INDEXED BY idempotency_records_lease
WHERE state = 'executing' AND state = ?1 AND claimed_at <= ` + now + ` - ?2
	AND (?3 = '' OR tenant = ?3) AND (?4 = '' OR operation = ?4)`

	listOthers = `
SELECT tenant, actor, operation, key, ` + recordColumns + `
FROM idempotency_records
WHERE ` + stateNow + ` = ?1
	AND CASE WHEN replay_until <= ` + now + ` THEN replay_until ELSE coalesce(settled_at, claimed_at) END
		<= ` + now + ` - ?2
	AND (?3 = '' OR tenant = ?3) AND (?4 = '' OR operation = ?4)`

	othersAfter = `
	AND (tenant, actor, operation, key) > (?6, ?7, ?8, ?9)`

	othersPage = `
ORDER BY tenant, actor, operation, key
LIMIT ?5`
)

// List implements store.Engine.
func (e *Engine) List(ctx context.Context, f store.Filter) ([]*store.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	query, next, page := listOthers, othersAfter, othersPage
	switch f.State {
	case store.Unknown:
		query, next, page = listUnknown, unknownAfter, unknownPage
	case store.Executing:
		query = listExecuting
	}
	args := []any{string(f.State), milliseconds(f.OlderThan), f.Tenant, f.Operation, f.Limit}
	if after := f.After; after != nil {
		query += next
		if f.State == store.Unknown {
			args = append(args, after.SettledAt.UnixMilli())
		}
		args = append(args, after.Tenant, after.Actor, after.Operation, after.Key)
	}
	return e.list(ctx, "listing records", query+page, args...)
}

// list runs a query whose rows are an identity and recordColumns.
func (e *Engine) list(ctx context.Context, op, query string, args ...any) (records []*store.Record, err error) {
	err = e.each(ctx, op, func(rows *sql.Rows) error {
		record, err := scanListed(rows)
		records = append(records, record)
		return err
	}, query, args...)
	return records, err
}

const audit = `
SELECT at, decided_by, from_state, to_state, status, reason FROM idempotency_audit
WHERE tenant = ?1 AND actor = ?2 AND operation = ?3 AND key = ?4
ORDER BY id`

// Audit implements store.Engine.
func (e *Engine) Audit(ctx context.Context, id store.Identity) (entries []store.AuditEntry, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	err = e.each(ctx, "reading audit", func(rows *sql.Rows) error {
		entry := store.AuditEntry{Identity: id}
		var at int64
		var status sql.NullInt32
		if err := rows.Scan(&at, &entry.By, &entry.From, &entry.To, &status, &entry.Reason); err != nil {
			return &store.CorruptError{Detail: "scanning audit", Err: err}
		}
		entry.At, entry.Status = moment(at), int(status.Int32)
		entries = append(entries, entry)
		return nil
	}, audit, id.Tenant, id.Actor, id.Operation, id.Key)
	return entries, err
}

// each runs a query and calls scan for each row.
func (e *Engine) each(ctx context.Context, op string, scan func(*sql.Rows) error, query string, args ...any) error {
	rows, err := e.readers.QueryContext(ctx, query, args...)
	if err != nil {
		return failed(op, err)
	}
	defer rows.Close()
	for rows.Next() {
		err := scan(rows)
		if ctx.Err() != nil {
			return failed(op, ctx.Err()) // the rows may have been closed under the scan
		}
		if err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return failed(op, err)
	}
	return nil
}
