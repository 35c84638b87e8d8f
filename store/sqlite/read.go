package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// selectRecord reads a row with its state as the clock has it: a replay window
// that is over is over, whether or not the sweeper came by. The driver reads an
// empty BLOB as nil, so that SQL has to say whether a response is kept.
const selectRecord = `
SELECT ` + recordColumns + `,
	response_header IS NOT NULL, response_body IS NOT NULL, response_header, response_body
FROM idempotency_records
WHERE tenant = ?1 AND actor = ?2 AND operation = ?3 AND key = ?4`

const stateNow = `CASE WHEN state = 'completed' AND replay_until <= ` + now + ` THEN 'expired' ELSE state END`

const recordColumns = `
	` + stateNow + `,
	claim_token, fingerprint_algorithm, fingerprint_version, fingerprint, fingerprint_members,
	status, resource, reason, natural_key, verifications,
	claimed_at, lease_until, settled_at, replay_until, ` + now

// Read implements store.Engine. It waits for nothing and makes nothing wait: its
// snapshot is the last commit, and a transition under way is in it or not.
func (e *Engine) Read(ctx context.Context, id store.Identity) (*store.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	return e.read(ctx, id)
}

func (e *Engine) read(ctx context.Context, id store.Identity) (*store.Record, error) {
	const op = "reading record"
	rows, err := e.reading.QueryContext(ctx, id.Tenant, id.Actor, id.Operation, id.Key)
	if err != nil {
		return nil, failed(op, err)
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return nil, failed(op, err)
		}
		return nil, store.ErrNoRecord
	}
	record, err := scanRecord(rows, id)
	if ctx.Err() != nil {
		return nil, failed(op, ctx.Err()) // the rows may have been closed under the scan
	}
	return record, err
}

// scanRecord reads recordColumns and the response.
func scanRecord(rows *sql.Rows, id store.Identity) (*store.Record, error) {
	r := &store.Record{Identity: id}
	var header, body []byte
	var headerRetained, responseRetained bool
	if err := scanColumns(rows, r, nil, &headerRetained, &responseRetained, &header, &body); err != nil {
		return nil, err
	}
	if headerRetained != responseRetained {
		return nil, &store.CorruptError{Detail: "half of a response"}
	}
	if r.State == store.Completed && responseRetained {
		decoded, err := store.DecodeHeader(header)
		if err != nil {
			return nil, &store.CorruptError{Detail: "response header", Err: err}
		}
		if body == nil {
			body = []byte{}
		}
		r.Response = &store.Response{Header: decoded, Body: body}
	}
	return checked(r)
}

// scanListed reads an identity and recordColumns.
func scanListed(rows *sql.Rows) (*store.Record, error) {
	r := &store.Record{}
	if err := scanColumns(rows, r, []any{&r.Tenant, &r.Actor, &r.Operation, &r.Key}); err != nil {
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
func scanColumns(rows *sql.Rows, r *store.Record, before []any, after ...any) error {
	var (
		token, sum                    []byte
		status, verifications         sql.NullInt32
		resource, reason, naturalKey  sql.NullString
		claimedAt, leaseUntil, readAt int64
		settledAt, replayUntil        sql.NullInt64
	)
	columns := append(before, &r.State,
		&token, &r.Fingerprint.Algorithm, &r.Fingerprint.Version, &sum, &r.Fingerprint.Members,
		&status, &resource, &reason, &naturalKey, &verifications,
		&claimedAt, &leaseUntil, &settledAt, &replayUntil, &readAt)
	err := rows.Scan(append(columns, after...)...)
	switch {
	case err != nil:
		return &store.CorruptError{Detail: "scanning columns", Err: err}
	case len(token) != len(r.Token):
		return &store.CorruptError{Detail: "claim token has another length than a token"}
	case len(sum) != len(r.Fingerprint.Sum):
		return &store.CorruptError{Detail: "fingerprint has another length than SHA-256"}
	}
	copy(r.Token[:], token)
	copy(r.Fingerprint.Sum[:], sum)
	r.Status, r.Resource, r.Reason = int(status.Int32), resource.String, reason.String
	r.NaturalKey, r.Verifications = naturalKey.String, int(verifications.Int32)
	r.ClaimedAt, r.LeaseUntil, r.Now = moment(claimedAt), moment(leaseUntil), moment(readAt)
	if settledAt.Valid {
		r.SettledAt = moment(settledAt.Int64)
	}
	if replayUntil.Valid {
		r.ReplayUntil = moment(replayUntil.Int64)
	}
	return nil
}

func moment(milliseconds int64) time.Time { return time.UnixMilli(milliseconds).UTC() }
