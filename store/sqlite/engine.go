// Package sqlite keeps idempotency records in a file of this host: the embedded
// store, for one instance, without set-up.
//
// What lives here is how SQLite makes each transition of package store atomic
// and durable. When which transition may happen is decided in package store.
//
// # Who writes
//
// One process at a time has the file: a lock file beside it refuses the second
// (InUseError). Within the process one connection writes. Each transition is one
// guarded statement; statements that come while the disk is busy with a commit
// share the next one (writer.go). A small pool of connections reads.
//
// # What is durable
//
// The file is in WAL mode with synchronous=FULL, and every new connection is
// asked whether that is in force. A commit is on disk before it is visible to
// any reader, and visible before it is acknowledged. So a replay never shows
// what a power failure could take back, and Read sees every transition that was
// acknowledged before it began.
//
// # Whose clock
//
// Leases and windows are counted and judged inside SQL, by SQLite's clock, in
// milliseconds: that of this host, the same before and after a restart.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/gofrs/flock"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// Engine implements store.Engine.
type Engine struct {
	timeout time.Duration
	lock    *flock.Flock
	writer  *writer
	readers *sql.DB
	reading *sql.Stmt   // selectRecord, compiled once for each connection
	seen    store.Hints // see Claim
}

var _ store.Engine = (*Engine)(nil)

// now is SQLite's clock in milliseconds, the same everywhere in one statement.
// It comes as a fraction of seconds; round, since CAST alone cuts off and
// 1.001 * 1000 may be a little less than 1001.
const now = `CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER)`

// insertClaim names both of the constraints that a claim may lose to. Neither is an
// error, which would make all others of the same commit wait for one of their own.
const insertClaim = `
INSERT INTO idempotency_records (
	tenant, actor, operation, key, state, claim_token,
	fingerprint_algorithm, fingerprint_version, fingerprint, fingerprint_members,
	claimed_at, lease_until, natural_key)
VALUES (?1, ?2, ?3, ?4, 'executing', ?5, ?6, ?7, ?8, ?9, ` + now + `, ` + now + ` + ?10, ?11)
ON CONFLICT (tenant, actor, operation, key) DO NOTHING
ON CONFLICT (tenant, operation, natural_key) WHERE natural_key IS NOT NULL DO NOTHING`

// Claim implements store.Engine.
func (e *Engine) Claim(ctx context.Context, draft store.Draft) (won bool, held *store.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()

	if e.seen.Has(draft.Identity) {
		held, err := e.read(ctx, draft.Identity)
		switch {
		case err == nil && held.State == store.Completed:
			return false, held, nil
		case err != nil && err != store.ErrNoRecord:
			return false, nil, notWon(err)
		}
	}
	steps := []step{{insertClaim, claimArgs(draft)}}
	if len(draft.Quotas) > 0 {
		steps = claimWithinSteps(draft)
	}
	inserted, err := e.writer.writeAll(ctx, "claiming record", steps...)
	if err != nil || inserted == 1 {
		return err == nil, nil, err
	}
	won, held, err = e.lostTo(ctx, draft)
	if err == nil && !won && held != nil && held.State == store.Completed {
		e.seen.Add(draft.Identity)
	}
	return won, held, notWon(err)
}

// notWon is the error of a claim that was decided against.
func notWon(err error) error {
	var failed *store.EngineError
	if errors.As(err, &failed) {
		err = &store.NotWonError{Err: err}
	}
	return err
}

// lostTo reads what decided against a claim, which may turn out to be an earlier try
// of its own. It is a statement of its own, so that the writer is free for the next
// claim meanwhile.
func (e *Engine) lostTo(ctx context.Context, draft store.Draft) (won bool, held *store.Record, err error) {
	held, err = e.read(ctx, draft.Identity)
	switch {
	case err == store.ErrNoRecord:
		// A business identity that is taken is told so, whatever a quota says.
		if draft.NaturalKey != "" {
			if err := e.naturalKeyHolder(ctx, draft); err != nil {
				return false, nil, err
			}
		}
		if len(draft.Quotas) > 0 {
			return false, nil, e.quotaExceeded(ctx, draft)
		}
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
		draft.Tenant, draft.Actor, draft.Operation, draft.Key, draft.Token[:],
		draft.Fingerprint.Algorithm, draft.Fingerprint.Version, draft.Fingerprint.Sum[:], draft.Fingerprint.Members,
		milliseconds(draft.Lease), orNull(draft.NaturalKey),
	}
}

const naturalKeyHolder = `
SELECT actor, key FROM idempotency_records
WHERE tenant = ?1 AND operation = ?2 AND natural_key = ?3 AND (actor, key) <> (?4, ?5)`

// naturalKeyHolder returns whose the natural key is, as an error; nil if it was
// released meanwhile, also if the draft's own key was claimed with it since then.
func (e *Engine) naturalKeyHolder(ctx context.Context, draft store.Draft) (taken error) {
	err := e.each(ctx, "reading natural key", func(rows *sql.Rows) error {
		holder := draft.Identity
		err := rows.Scan(&holder.Actor, &holder.Key)
		taken = &store.NaturalKeyTakenError{Holder: holder}
		return err
	}, naturalKeyHolder, draft.Tenant, draft.Operation, draft.NaturalKey, draft.Actor, draft.Key)
	if err != nil {
		return err
	}
	return taken
}

const complete = `
UPDATE idempotency_records
SET state = 'completed', settled_at = ` + now + `, unknown_since = NULL, reason = NULL, verify_at = NULL, probing_until = NULL,
	status = ?6, resource = ?7, response_header = ?8, response_body = ?9,
	replay_until = ` + now + ` + ?10,
	keep_until = CASE WHEN ?11 > 0 THEN ` + now + ` + ?10 + ?11 END
WHERE tenant = ?1 AND actor = ?2 AND operation = ?3 AND key = ?4
	AND claim_token = ?5 AND state IN ('executing', 'unknown')`

// Complete implements store.Engine.
func (e *Engine) Complete(ctx context.Context, id store.Identity, token store.Token, c store.Completion) error {
	header, body := c.Response.Encode()
	err := e.transition(ctx, "completing record", step{complete, []any{
		id.Tenant, id.Actor, id.Operation, id.Key, token[:],
		c.Status, orNull(c.Resource), header, body,
		milliseconds(c.ReplayFor), milliseconds(c.KeepFor),
	}})
	if err == nil {
		e.seen.Add(id)
	}
	return err
}

const markUnknown = `
UPDATE idempotency_records
SET state = 'unknown', settled_at = ` + now + `, unknown_since = ` + now + `, verify_at = ` + now + `,
	status = ?6, resource = ?7, reason = ?8
WHERE tenant = ?1 AND actor = ?2 AND operation = ?3 AND key = ?4
	AND claim_token = ?5 AND state = 'executing'`

// MarkUnknown implements store.Engine.
func (e *Engine) MarkUnknown(ctx context.Context, id store.Identity, token store.Token, d store.Doubt) error {
	return e.transition(ctx, "marking record unknown", step{markUnknown, []any{
		id.Tenant, id.Actor, id.Operation, id.Key, token[:],
		orNull(d.Status), orNull(d.Resource), orNull(d.Reason),
	}})
}

const release = `
DELETE FROM idempotency_records
WHERE tenant = ?1 AND actor = ?2 AND operation = ?3 AND key = ?4
	AND claim_token = ?5 AND state IN ('executing', 'unknown')`

// Release implements store.Engine.
func (e *Engine) Release(ctx context.Context, id store.Identity, token store.Token) error {
	return e.transition(ctx, "releasing record", step{release, []any{
		id.Tenant, id.Actor, id.Operation, id.Key, token[:],
	}})
}

// transition runs one guarded statement over one record, and what follows it.
func (e *Engine) transition(ctx context.Context, op string, steps ...step) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()

	moved, err := e.writer.writeAll(ctx, op, steps...)
	if err == nil && moved == 0 {
		return store.ErrNotHeld
	}
	return err
}

// milliseconds rounds up: a duration that somebody asked for is never cut short.
func milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if time.Duration(ms)*time.Millisecond < d {
		ms++
	}
	return ms
}

// orNull keeps "nothing known" out of the columns: NULL says so.
func orNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
