package postgres

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// selectRecord reads records and their responses, with their states as the
// database's clock has them: a replay window that is over is over, whether or not
// the sweeper came by. Both are of one snapshot, so that it must not lock records:
// having waited for the lock, it would see a new record and no response yet.
const selectRecord = `
SELECT ` + recordColumns + `, header, body
FROM idempotency_records r
LEFT JOIN LATERAL (
	SELECT header, body FROM idempotency_responses p
	WHERE p.claim_token = r.claim_token AND p.tenant = r.tenant
	LIMIT 1
) p ON true`

const recordColumns = `
	CASE WHEN state = 'completed' AND replay_until <= now() THEN 'expired' ELSE state END,
	claim_token, fingerprint_algorithm, fingerprint_version, fingerprint, fingerprint_members,
	status, resource, reason, natural_key, verifications,
	claimed_at, lease_until, settled_at, replay_until, now()`

// replayable is a record that nothing will write for a while: completed, with a
// replay window that ends well after now. There a lock could not matter, and
// would cost a transaction id and WAL.
const replayable = `(state = 'completed' AND replay_until IS NOT NULL AND replay_until > now() + interval '1 minute')`

const (
	ofIdentity = ` WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4`

	readRecord   = selectRecord + ofIdentity
	readSettled  = readRecord + ` AND ` + replayable
	lockUnderWay = `SELECT FROM idempotency_records` + ofIdentity + ` AND NOT ` + replayable + ` FOR SHARE`
)

// Read implements store.Engine. A record under way is read under a shared lock,
// which waits for the transition that holds it and makes the next one wait. The
// read is a statement of its own, whose snapshot is newer than the lock.
func (e *Engine) Read(ctx context.Context, id store.Identity) (*store.Record, error) {
	var record *store.Record
	err := e.inTx(ctx, "reading record", lazy, func(b *pgx.Batch) {
		b.Queue(lockUnderWay, id.Tenant, id.Actor, id.Operation, id.Key)
		queueRead(b, readRecord, id, &record)
	})
	if err == nil && record == nil {
		return nil, store.ErrNoRecord
	}
	return record, err
}

// queueRead queues a SELECT of selectRecord; record is left alone if it finds
// no row.
func queueRead(b *pgx.Batch, sql string, id store.Identity, record **store.Record) {
	b.Queue(sql, id.Tenant, id.Actor, id.Operation, id.Key).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			r, err := scanRecord(rows, id)
			if err != nil {
				return err
			}
			*record = r
		}
		return rows.Err()
	})
}

// scanRecord reads recordColumns and the response, and what stands before them.
func scanRecord(row pgx.Row, id store.Identity, before ...any) (*store.Record, error) {
	r := &store.Record{Identity: id}
	var header, body []byte
	if err := scanColumns(row, r, before, &header, &body); err != nil {
		return nil, err
	}
	if (header == nil) != (body == nil) {
		return nil, &store.CorruptError{Detail: "half of a response"}
	}
	if r.State == store.Completed && body != nil {
		decoded, err := store.DecodeHeader(header)
		if err != nil {
			return nil, &store.CorruptError{Detail: "response header", Err: err}
		}
		r.Response = &store.Response{Header: decoded, Body: body}
	}
	return checked(r)
}

// scanListed reads an identity and recordColumns.
func scanListed(row pgx.Row) (*store.Record, error) {
	r := &store.Record{}
	if err := scanColumns(row, r, []any{&r.Tenant, &r.Actor, &r.Operation, &r.Key}); err != nil {
		return nil, err
	}
	return checked(r)
}

func checked(r *store.Record) (*store.Record, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	return r, nil
}

// scanColumns reads recordColumns into r, and what stands before and after them.
func scanColumns(row pgx.Row, r *store.Record, before []any, after ...any) error {
	var (
		sum                          []byte
		status, verifications        *int
		resource, reason, naturalKey *string
		settledAt, replayUntil       *time.Time
	)
	columns := append(before, &r.State, (*[16]byte)(&r.Token),
		&r.Fingerprint.Algorithm, &r.Fingerprint.Version, &sum, &r.Fingerprint.Members,
		&status, &resource, &reason, &naturalKey, &verifications,
		&r.ClaimedAt, &r.LeaseUntil, &settledAt, &replayUntil, &r.Now)
	if err := row.Scan(append(columns, after...)...); err != nil {
		return &store.CorruptError{Detail: "scanning columns", Err: err}
	}
	if len(sum) != sha256.Size {
		return &store.CorruptError{Detail: "fingerprint has another length than SHA-256"}
	}
	copy(r.Fingerprint.Sum[:], sum)
	r.Status, r.Resource, r.Reason = orZero(status), orZero(resource), orZero(reason)
	r.NaturalKey, r.Verifications = orZero(naturalKey), orZero(verifications)
	r.SettledAt, r.ReplayUntil = orZero(settledAt), orZero(replayUntil)
	return nil
}
