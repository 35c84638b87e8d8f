// Package postgres keeps idempotency records in PostgreSQL, for any number of
// instances: the database arbitrates.
//
// What lives here is how PostgreSQL makes each transition of package store
// atomic. Each is one guarded statement, in a transaction of its own that is
// READ COMMITTED, is sent in one round trip, and holds a connection for no longer.
// When which transition may happen is decided in package store.
//
// The engine works through a transaction-mode pooler, needs no more than the
// rights to read and write its tables, and uses nothing that the distributed
// engines which speak PostgreSQL's protocol lack: no advisory lock, no
// notification.
package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// Engine implements store.Engine.
type Engine struct {
	pool   *pgxpool.Pool
	config Config
}

var _ store.Engine = (*Engine)(nil)

// Close waits for the calls under way and closes every connection.
func (e *Engine) Close() error {
	e.pool.Close()
	return nil
}

// insertClaim competes for the row. The conflict target is named, so that no
// other constraint can ever be mistaken for a lost claim, and a loser writes
// nothing: no WAL, no transaction id.
const insertClaim = `
WITH claimed AS (
	INSERT INTO idempotency_records (
		tenant, actor, operation, key, state, claim_token,
		fingerprint_algorithm, fingerprint_version, fingerprint, fingerprint_members,
		claimed_at, lease_until, natural_key)
	VALUES ($1, $2, $3, $4, 'executing', $5, $6, $7, $8, $9,
		now(), now() + $10::bigint * interval '1 microsecond', $11)
	ON CONFLICT (tenant, actor, operation, key) DO NOTHING
	RETURNING tenant, actor, operation, key, claim_token, lease_until
)
INSERT INTO idempotency_due (awaits, due_at, tenant, actor, operation, key, claim_token)
SELECT 'lease', lease_until, tenant, actor, operation, key, claim_token FROM claimed`

// Claim implements store.Engine. The loser's read is a statement of its own,
// since the INSERT's snapshot may be older than the row it lost to.
func (e *Engine) Claim(ctx context.Context, draft store.Draft) (won bool, held *store.Record, err error) {
	var exceeded *store.QuotaExceededError
	err = e.inTx(ctx, "claiming record", durable, func(b *pgx.Batch) {
		if len(draft.Quotas) > 0 {
			queueClaimWithin(b, draft, &won, &exceeded)
		} else {
			b.Queue(insertClaim, claimArgs(draft)...).Exec(func(tag pgconn.CommandTag) error {
				won = tag.RowsAffected() == 1
				return nil
			})
		}
		// The commonest loser, a replay far from expiry, is served by this round trip.
		queueRead(b, readSettled, draft.Identity, &held)
	})
	clash := isNaturalKeyClash(err)
	if err != nil && !clash || won || held != nil {
		return won, held, err
	}
	held, err = e.Read(ctx, draft.Identity)
	switch {
	case err == store.ErrNoRecord && (clash || exceeded != nil && draft.NaturalKey != ""):
		// A business identity that is taken is told so, whatever the quota says.
		if err := e.naturalKeyHolder(ctx, draft); err != nil || exceeded == nil {
			return false, nil, err
		}
		return false, nil, exceeded
	case err == store.ErrNoRecord && exceeded != nil:
		return false, nil, exceeded
	case err == store.ErrNoRecord:
		return false, nil, nil
	case err != nil:
		return false, nil, err
	case held.Token == draft.Token && held.State == store.Executing:
		return true, nil, nil // an earlier try took effect
	}
	return false, held, nil
}

// claimArgs are the parameters of insertClaim.
func claimArgs(draft store.Draft) []any {
	return []any{
		draft.Tenant, draft.Actor, draft.Operation, draft.Key, [16]byte(draft.Token),
		draft.Fingerprint.Algorithm, draft.Fingerprint.Version, draft.Fingerprint.Sum[:], draft.Fingerprint.Members,
		draft.Lease.Microseconds(), orNull(draft.NaturalKey),
	}
}

// isNaturalKeyClash tells the other unique constraint from every other error. Two
// claims of the same key and the same natural key at once may also run into it
// before the conflict target: whoever gets it has to look for its own record first.
func isNaturalKeyClash(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == uniqueViolation && pg.ConstraintName == "idempotency_records_natural"
}

const naturalKeyHolder = `
SELECT actor, key FROM idempotency_records
WHERE tenant = $1 AND operation = $2 AND natural_key = $3 AND (actor, key) <> ($4, $5)`

// naturalKeyHolder returns whose the natural key is, as an error; nil if it was
// released meanwhile, also if the draft's own key was claimed with it since then.
func (e *Engine) naturalKeyHolder(ctx context.Context, draft store.Draft) error {
	holder := draft.Identity
	found := false
	err := e.inTx(ctx, "reading natural key", lazy, func(b *pgx.Batch) {
		b.Queue(naturalKeyHolder, draft.Tenant, draft.Operation, draft.NaturalKey, draft.Actor, draft.Key).Query(func(rows pgx.Rows) error {
			defer rows.Close()
			for rows.Next() {
				found = true
				if err := rows.Scan(&holder.Actor, &holder.Key); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	})
	if err == nil && found {
		err = &store.NaturalKeyTakenError{Holder: holder}
	}
	return err
}

// complete settles a record that is executing: the routine way, a HOT update. The
// sweeper comes by when the lease is over and learns of the replay window then;
// a window that ends sooner, or comes after that, is put on its list here.
const complete = `
WITH completed AS (
	UPDATE idempotency_records
	SET state = 'completed', settled_at = now(),
		status = $6, resource = $7, response_header = $8, response_body = $9,
		replay_until = now() + $10::bigint * interval '1 microsecond',
		keep_until = now() + ($10::bigint + nullif($11::bigint, 0)) * interval '1 microsecond'
	WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4
		AND claim_token = $5 AND state = 'executing'
	RETURNING tenant, actor, operation, key, claim_token, replay_until, lease_until
), listed AS (
	INSERT INTO idempotency_due (awaits, due_at, tenant, actor, operation, key, claim_token)
	SELECT 'window', replay_until, tenant, actor, operation, key, claim_token FROM completed
	WHERE replay_until < lease_until OR lease_until <= now()
)
SELECT count(*) FROM completed`

// completeLate settles a record that has become unknown meanwhile. The sweeper
// may have crossed it off its list, so that it is listed again.
const completeLate = `
WITH completed AS (
	UPDATE idempotency_records
	SET state = 'completed', settled_at = now(),
		unknown_since = NULL, reason = NULL, verify_at = NULL, probing_until = NULL,
		status = $6, resource = $7, response_header = $8, response_body = $9,
		replay_until = now() + $10::bigint * interval '1 microsecond',
		keep_until = now() + ($10::bigint + nullif($11::bigint, 0)) * interval '1 microsecond'
	WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4
		AND claim_token = $5 AND state = 'unknown'
	RETURNING tenant, actor, operation, key, claim_token, replay_until
), listed AS (
	INSERT INTO idempotency_due (awaits, due_at, tenant, actor, operation, key, claim_token)
	SELECT 'window', replay_until, tenant, actor, operation, key, claim_token FROM completed
)
SELECT count(*) FROM completed`

// Complete implements store.Engine.
func (e *Engine) Complete(ctx context.Context, id store.Identity, token store.Token, c store.Completion) error {
	header, body := encodeResponse(c.Response)
	args := []any{
		id.Tenant, id.Actor, id.Operation, id.Key, [16]byte(token),
		c.Status, orNull(c.Resource), header, body,
		c.ReplayFor.Microseconds(), c.KeepFor.Microseconds(),
	}
	err := e.transition(ctx, "completing record", complete, args)
	if err == store.ErrNotHeld {
		err = e.transition(ctx, "completing record late", completeLate, args)
	}
	return err
}

// encodeResponse returns NULLs for a response that is not kept, and never for one
// that is.
func encodeResponse(r *store.Response) (header, body []byte) {
	if r == nil {
		return nil, nil
	}
	if r.Body == nil {
		return store.EncodeHeader(r.Header), []byte{}
	}
	return store.EncodeHeader(r.Header), r.Body
}

const markUnknown = `
WITH marked AS (
	UPDATE idempotency_records
	SET state = 'unknown', settled_at = now(), unknown_since = now(), verify_at = now(),
		status = $6, resource = $7, reason = $8
	WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4
		AND claim_token = $5 AND state = 'executing'
	RETURNING 1
)
SELECT count(*) FROM marked`

// MarkUnknown implements store.Engine.
func (e *Engine) MarkUnknown(ctx context.Context, id store.Identity, token store.Token, d store.Doubt) error {
	return e.transition(ctx, "marking record unknown", markUnknown, []any{
		id.Tenant, id.Actor, id.Operation, id.Key, [16]byte(token),
		orNull(d.Status), orNull(d.Resource), orNull(d.Reason),
	})
}

const release = `
WITH released AS (
	DELETE FROM idempotency_records
	WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4
		AND claim_token = $5 AND state IN ('executing', 'unknown')
	RETURNING 1
)
SELECT count(*) FROM released`

// Release implements store.Engine.
func (e *Engine) Release(ctx context.Context, id store.Identity, token store.Token) error {
	return e.transition(ctx, "releasing record", release, []any{
		id.Tenant, id.Actor, id.Operation, id.Key, [16]byte(token),
	})
}

// transition runs one guarded statement that counts what it moved.
func (e *Engine) transition(ctx context.Context, op, sql string, args []any) error {
	var moved int
	err := e.inTx(ctx, op, durable, func(b *pgx.Batch) {
		b.Queue(sql, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&moved) })
	})
	if err == nil && moved == 0 {
		return store.ErrNotHeld
	}
	return err
}

// orNull keeps "nothing known" out of the columns: NULL says so.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
