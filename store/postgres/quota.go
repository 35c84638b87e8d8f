package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// A claim with quotas takes their locks in one statement and decides in the next,
// whose snapshot is newer than the locks: it sees whatever the holders before it
// have counted and inserted. Both look first whether the key has a record, so that
// a retry neither waits for a quota nor is counted.

// windowEnd of the window that now() is in. The lock of what is executing has one
// too, so that it is purged when nobody needs it any more.
const windowEnd = `to_timestamp(((extract(epoch FROM now()) * 1000)::bigint / coalesce(nullif(l.period, 0), 3600000) + 1)
		* coalesce(nullif(l.period, 0), 3600000) / 1000.0)`

// lockQuotas locks also those rows that its WHERE leaves as they are (PostgreSQL
// manual, INSERT, ON CONFLICT DO UPDATE), and makes those that a sweep has deleted
// under it. Actors come before tenants, so that no two claims wait for each other.
//
// A claim that has waited past the end of its window finds the next one begun, and
// is counted there: a window never goes back.
const lockQuotas = `
INSERT INTO idempotency_quotas AS q (tenant, operation, actor, period, window_end, used)
SELECT $1, $3, l.actor, l.period, ` + windowEnd + `, 0
FROM unnest($5::text[], $6::bigint[]) AS l (actor, period)
WHERE NOT EXISTS (
	SELECT FROM idempotency_records WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4)
ORDER BY l.actor = '', l.period
ON CONFLICT (tenant, operation, actor, period) DO UPDATE SET window_end = excluded.window_end, used = 0
	WHERE q.window_end < excluded.window_end`

// executingSlots are those of a scope that are to be believed.
const executingSlots = `
	SELECT count(*) FROM idempotency_slots s JOIN idempotency_records r USING (tenant, operation, actor, key, claim_token)
	WHERE s.tenant = $1 AND s.operation = $3 AND r.state = 'executing'`

const notExecuting = `NOT EXISTS (
		SELECT FROM idempotency_records r
		WHERE r.tenant = s.tenant AND r.actor = s.actor AND r.operation = s.operation AND r.key = s.key
			AND r.claim_token = s.claim_token AND r.state = 'executing')`

// claimWithin is insertClaims within quotas, for one claim. The stale slots that it meets would be
// counted through by every claim after it.
const claimWithin = `
WITH limits AS (
	SELECT * FROM unnest($12::text[], $13::bigint[], $14::bigint[]) WITH ORDINALITY AS l (actor, period, most, position)
), exceeded AS (
	SELECT l.position, CASE WHEN l.period > 0 THEN q.window_end - now() END AS remaining
	FROM limits l
	JOIN idempotency_quotas q ON q.tenant = $1 AND q.operation = $3 AND q.actor = l.actor AND q.period = l.period
	WHERE l.most <= CASE
		WHEN l.period > 0 THEN q.used
		WHEN l.actor = '' THEN (` + executingSlots + `)
		ELSE (` + executingSlots + ` AND s.actor = $2) END
), claimed AS (
	INSERT INTO idempotency_records (
		tenant, actor, operation, key, state, claim_token,
		fingerprint_algorithm, fingerprint_version, fingerprint, fingerprint_members,
		claimed_at, lease_until, natural_key)
	SELECT $1::text, $2::text, $3::text, $4::text, 'executing', $5::uuid, $6::smallint, $7::text, $8::bytea, $9::bytea,
		now(), now() + $10::bigint * interval '1 microsecond', $11::text
	WHERE NOT EXISTS (SELECT FROM exceeded) AND NOT EXISTS (
		SELECT FROM idempotency_records WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = $4)
	ON CONFLICT (tenant, actor, operation, key) DO NOTHING
	RETURNING tenant, actor, operation, key, claim_token, lease_until
), listed AS (
	INSERT INTO idempotency_due (awaits, due_at, tenant, actor, operation, key, claim_token)
	SELECT 'lease', lease_until, tenant, actor, operation, key, claim_token FROM claimed
), counted AS (
	UPDATE idempotency_quotas q SET used = q.used + 1
	FROM claimed c, limits l
	WHERE q.tenant = c.tenant AND q.operation = c.operation AND q.actor = l.actor AND q.period = l.period AND l.period > 0
), taken AS (
	INSERT INTO idempotency_slots (tenant, operation, actor, key, claim_token, lease_until)
	SELECT tenant, operation, actor, key, claim_token, lease_until FROM claimed
	WHERE EXISTS (SELECT FROM limits WHERE period = 0)
	ON CONFLICT (tenant, operation, actor, key, claim_token) DO NOTHING
), stale AS (
	SELECT s.tenant, s.operation, s.actor, s.key, s.claim_token
	FROM idempotency_slots s
	WHERE s.tenant = $1 AND s.operation = $3 AND s.claim_token <> $5
		AND (s.actor = $2 OR EXISTS (SELECT FROM limits WHERE period = 0 AND actor = ''))
		AND EXISTS (SELECT FROM claimed) AND EXISTS (SELECT FROM limits WHERE period = 0)
		AND ` + notExecuting + `
	FOR UPDATE OF s SKIP LOCKED
), freed AS (
	DELETE FROM idempotency_slots s USING stale
	WHERE s.tenant = stale.tenant AND s.operation = stale.operation AND s.actor = stale.actor
		AND s.key = stale.key AND s.claim_token = stale.claim_token
)
SELECT (SELECT count(*) FROM claimed), e.position, extract(epoch FROM e.remaining)::float8
FROM (VALUES (1)) AS always (one)
LEFT JOIN (SELECT * FROM exceeded ORDER BY remaining DESC NULLS LAST, position LIMIT 1) e ON true`

// queueClaimWithin queues a claim that has quotas. Exceeded is set if it was
// refused for the sake of one.
func queueClaimWithin(b *pgx.Batch, m *member, exceeded **store.QuotaExceededError) {
	draft := *m.draft
	var subjects []string
	var periods, most []int64
	for _, q := range draft.Quotas {
		subjects = append(subjects, q.Subject(draft.Scope))
		periods = append(periods, q.Window.Milliseconds())
		most = append(most, int64(q.Max))
	}
	b.Queue(lockQuotas, draft.Tenant, draft.Actor, draft.Operation, draft.Key, subjects, periods)
	b.Queue(claimWithin, append(claimArgs(draft), subjects, periods, most)...).QueryRow(func(row pgx.Row) error {
		var claimed int
		var position *int
		var remaining *float64 // nil for what is executing
		if err := row.Scan(&claimed, &position, &remaining); err != nil {
			return err
		}
		m.won = claimed == 1
		m.lost = !m.won
		if position != nil {
			*exceeded = &store.QuotaExceededError{Quota: draft.Quotas[*position-1], RetryAfter: store.RetryExecuting}
			if remaining != nil {
				(*exceeded).RetryAfter = time.Duration(*remaining * float64(time.Second))
			}
		}
		return nil
	})
}

// claimArgs are the first parameters of claimWithin.
func claimArgs(draft store.Draft) []any {
	return []any{
		draft.Tenant, draft.Actor, draft.Operation, draft.Key, [16]byte(draft.Token),
		draft.Fingerprint.Algorithm, draft.Fingerprint.Version, draft.Fingerprint.Sum[:], draft.Fingerprint.Members,
		draft.Lease.Microseconds(), orNull(draft.NaturalKey),
	}
}

const (
	purgeWindows = `
WITH over AS (
	SELECT tenant, operation, actor, period FROM idempotency_quotas
	WHERE window_end <= now() ORDER BY window_end LIMIT $1
	FOR UPDATE SKIP LOCKED
), purged AS (
	DELETE FROM idempotency_quotas q USING over
	WHERE q.tenant = over.tenant AND q.operation = over.operation AND q.actor = over.actor AND q.period = over.period
		AND q.window_end <= now()
	RETURNING 1
)
SELECT count(*) FROM purged`

	purgeSlots = `
WITH over AS (
	SELECT s.tenant, s.operation, s.actor, s.key, s.claim_token FROM idempotency_slots s
	WHERE s.lease_until <= now() AND ` + notExecuting + `
	ORDER BY s.lease_until LIMIT $1
	FOR UPDATE OF s SKIP LOCKED
), purged AS (
	DELETE FROM idempotency_slots s USING over
	WHERE s.tenant = over.tenant AND s.operation = over.operation AND s.actor = over.actor
		AND s.key = over.key AND s.claim_token = over.claim_token
	RETURNING 1
)
SELECT count(*) FROM purged`
)

// PurgeQuotas implements store.Engine.
func (e *Engine) PurgeQuotas(ctx context.Context, limit int) (int, error) {
	var windows, slots int
	err := e.inTx(ctx, "purging quotas", durable, func(b *pgx.Batch) {
		b.Queue(purgeWindows, limit).QueryRow(func(row pgx.Row) error { return row.Scan(&windows) })
		b.Queue(purgeSlots, limit).QueryRow(func(row pgx.Row) error { return row.Scan(&slots) })
	})
	return max(windows, slots), err
}
