package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// Claims with quotas take their locks in one statement and are decided in the next,
// whose snapshot is newer than the locks: it sees whatever the holders before them
// have counted and inserted. Both look first which of the keys have a record, so that
// a retry is not counted, and waits for a quota at most beside a key that is new.

// windowEnd of the window that now() is in. The lock of what is executing has one
// too, so that it is purged when nobody needs it any more.
const windowEnd = `to_timestamp(((extract(epoch FROM now()) * 1000)::bigint / coalesce(nullif(l.period, 0), 3600000) + 1)
		* coalesce(nullif(l.period, 0), 3600000) / 1000.0)`

// lockQuotas locks also those rows that its WHERE leaves as they are (PostgreSQL
// manual, INSERT, ON CONFLICT DO UPDATE), and makes those that a sweep has deleted
// under it. Actors come before tenants, each in their order, so that no two
// transactions wait for each other in a circle. It locks all or none, and leaves
// word of which.
//
// A claim that has waited past the end of its window finds the next one begun, and
// is counted there: a window never goes back.
const lockQuotas = `
WITH wanted AS (
	SELECT FROM unnest($3::text[], $4::text[]) AS c (actor, key)
	LEFT JOIN LATERAL (
		SELECT true AS known FROM idempotency_records
		WHERE tenant = $1 AND operation = $2 AND actor = c.actor AND key = c.key LIMIT 1) r ON true
	WHERE r.known IS NULL
	LIMIT 1
), locked AS (
	INSERT INTO idempotency_quotas AS q (tenant, operation, actor, period, window_end, used)
	SELECT $1, $2, l.actor, l.period, ` + windowEnd + `, 0
	FROM (SELECT DISTINCT actor, period FROM unnest($5::text[], $6::bigint[]) AS l (actor, period)) l
	WHERE EXISTS (SELECT FROM wanted)
	ORDER BY l.actor = '', l.actor, l.period
	ON CONFLICT (tenant, operation, actor, period) DO UPDATE SET window_end = excluded.window_end, used = 0
		WHERE q.window_end < excluded.window_end
)
SELECT set_config('idempotency.locked', (SELECT count(*) FROM wanted)::text, true)`

// isExecuting looks the record of a slot s up by the primary key. A join, or NOT
// EXISTS, would be planned while the tables are empty, and then read all records of
// the actor for each slot.
const isExecuting = `
	LEFT JOIN LATERAL (
		SELECT true AS executing FROM idempotency_records
		WHERE tenant = s.tenant AND actor = s.actor AND operation = s.operation AND key = s.key
			AND claim_token = s.claim_token AND state = 'executing'
		LIMIT 1) r ON true`

// claimsWithin is insertClaims within quotas, for claims of one scope. As many of the
// keys that are new are let in as the strictest quota has room for. The stale slots
// that it meets would be counted through by every claim after it.
const (
	claimsWithin         = claimsWithinOf + ` AND s.actor = $2` + orRefused
	claimsWithinOfTenant = claimsWithinOf + orRefused
)

const claimsWithinOf = `
WITH limits AS (
	SELECT * FROM unnest($12::text[], $13::bigint[], $14::bigint[]) WITH ORDINALITY AS l (actor, period, most, position)
), slots AS MATERIALIZED (
	SELECT s.*, r.executing
	FROM idempotency_slots s ` + isExecuting + `
	WHERE s.tenant = $1 AND s.operation = $3 AND EXISTS (SELECT FROM limits WHERE period = 0)`

const orRefused = `
), usage AS MATERIALIZED (
	SELECT l.position, CASE WHEN l.period > 0 THEN q.window_end - now() END AS remaining,
		l.most - CASE WHEN l.period > 0 THEN q.used ELSE (
			SELECT count(*) FROM slots s WHERE s.executing AND (l.actor = '' OR s.actor = l.actor)) END AS room
	FROM limits l
	CROSS JOIN LATERAL (
		SELECT window_end, used FROM idempotency_quotas
		WHERE tenant = $1 AND operation = $3 AND actor = l.actor AND period = l.period LIMIT 1) q
), wanted AS MATERIALIZED (
	SELECT c.*, dense_rank() OVER (ORDER BY c.key COLLATE "C") <= (SELECT min(room) FROM usage) AS within
	FROM unnest($4::text[], $5::uuid[], $6::smallint[], $7::text[], $8::bytea[], $9::bytea[], $10::bigint[], $11::text[])
		AS c (key, claim_token, algorithm, version, fingerprint, members, lease, natural_key)
	LEFT JOIN LATERAL (
		SELECT true AS known FROM idempotency_records
		WHERE tenant = $1 AND actor = $2 AND operation = $3 AND key = c.key LIMIT 1) r ON true
	WHERE r.known IS NULL AND current_setting('idempotency.locked') <> '0'
), claimed AS (
	INSERT INTO idempotency_records (
		tenant, actor, operation, key, state, claim_token,
		fingerprint_algorithm, fingerprint_version, fingerprint, fingerprint_members,
		claimed_at, lease_until, natural_key)
	SELECT $1, $2, $3, key, 'executing', claim_token, algorithm, version, fingerprint, members,
		now(), now() + lease * interval '1 microsecond', natural_key
	FROM wanted WHERE within ORDER BY key COLLATE "C"
	ON CONFLICT (tenant, actor, operation, key) DO NOTHING
	RETURNING tenant, actor, operation, key, claim_token, lease_until
), listed AS (
	INSERT INTO idempotency_due (awaits, due_at, tenant, actor, operation, key, claim_token)
	SELECT 'lease', lease_until, tenant, actor, operation, key, claim_token FROM claimed
), counted AS (
	UPDATE idempotency_quotas q SET used = q.used + (SELECT count(*) FROM claimed)
	FROM limits l
	WHERE q.tenant = $1 AND q.operation = $3 AND q.actor = l.actor AND q.period = l.period AND l.period > 0
		AND EXISTS (SELECT FROM claimed)
), taken AS (
	INSERT INTO idempotency_slots (tenant, operation, actor, key, claim_token, lease_until)
	SELECT tenant, operation, actor, key, claim_token, lease_until FROM claimed
	WHERE EXISTS (SELECT FROM limits WHERE period = 0)
	ON CONFLICT (tenant, operation, actor, key, claim_token) DO NOTHING
), stale AS (
	SELECT s.* FROM slots
	CROSS JOIN LATERAL (
		SELECT tenant, operation, actor, key, claim_token FROM idempotency_slots
		WHERE tenant = slots.tenant AND operation = slots.operation AND actor = slots.actor
			AND key = slots.key AND claim_token = slots.claim_token
		LIMIT 1 FOR UPDATE SKIP LOCKED) s
	WHERE slots.executing IS NULL AND slots.claim_token <> ALL ($5::uuid[]) AND EXISTS (SELECT FROM claimed)
), freed AS (
	DELETE FROM idempotency_slots s USING stale
	WHERE s.tenant = stale.tenant AND s.operation = stale.operation AND s.actor = stale.actor
		AND s.key = stale.key AND s.claim_token = stale.claim_token
)
SELECT wanted.claim_token, claimed.claim_token IS NOT NULL, e.position, extract(epoch FROM e.remaining)::float8
FROM wanted
LEFT JOIN claimed USING (claim_token)
LEFT JOIN (
	SELECT position, remaining FROM usage WHERE room <= (SELECT count(*) FROM claimed)
	ORDER BY remaining DESC NULLS LAST, position LIMIT 1) e ON NOT wanted.within`

// bounds are what lockQuotas and claimsWithin know of a draft's quotas.
type bounds struct {
	subjects      []string
	periods, most []int64
	ofTenant      bool // one bounds what all actors execute
}

func boundsOf(draft *store.Draft) (b bounds) {
	for _, q := range draft.Quotas {
		b.subjects = append(b.subjects, q.Subject(draft.Scope))
		b.periods = append(b.periods, q.Window.Milliseconds())
		b.most = append(b.most, int64(q.Max))
		b.ofTenant = b.ofTenant || q.PerTenant && q.Window == 0
	}
	return b
}

// queueWithin queues claims in one operation of a tenant, in the order of their keys.
func queueWithin(b *pgx.Batch, claims []*member) {
	_, actors, _, keys := identities(claims)
	groups := alike(claims)
	var subjects []string
	var periods []int64
	for _, group := range groups {
		of := boundsOf(group[0].draft)
		subjects, periods = append(subjects, of.subjects...), append(periods, of.periods...)
	}
	b.Queue(lockQuotas, claims[0].draft.Tenant, claims[0].draft.Operation, actors, keys, subjects, periods)
	for _, group := range groups {
		queueAlike(b, group)
	}
}

// alike splits the claims where the scope changes, or the quotas do.
func alike(claims []*member) (groups [][]*member) {
	begin := 0
	for i, m := range claims {
		if first := claims[begin].draft; m.draft.Scope != first.Scope || !slices.Equal(m.draft.Quotas, first.Quotas) {
			groups, begin = append(groups, claims[begin:i]), i
		}
	}
	return append(groups, claims[begin:])
}

// queueAlike queues claims that have their scope and their quotas in common. Exceeded
// is set for those that were refused for the sake of one.
func queueAlike(b *pgx.Batch, claims []*member) {
	first, of := claims[0].draft, boundsOf(claims[0].draft)
	byToken := make(map[store.Token]*member, len(claims))
	keys := make([]string, len(claims))
	for i, m := range claims {
		byToken[m.draft.Token], keys[i] = m, m.draft.Key
		m.won, m.exceeded = false, nil // as a transaction that was given up may have left them
	}
	sql := claimsWithin
	if of.ofTenant {
		sql = claimsWithinOfTenant
	}
	args := append([]any{first.Tenant, first.Actor, first.Operation, keys}, claimColumns(claims)...)
	b.Queue(sql, append(args, of.subjects, of.periods, of.most)...).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			var token store.Token
			var won bool
			var position *int
			var remaining *float64 // nil for what is executing
			if err := rows.Scan((*[16]byte)(&token), &won, &position, &remaining); err != nil {
				return err
			}
			m := byToken[token]
			m.won = won
			if position != nil {
				m.exceeded = &store.QuotaExceededError{Quota: first.Quotas[*position-1], RetryAfter: store.RetryExecuting}
				if remaining != nil {
					m.exceeded.RetryAfter = time.Duration(*remaining * float64(time.Second))
				}
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		for _, m := range claims {
			m.lost = !m.won
		}
		return nil
	})
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
	SELECT s.tenant, s.operation, s.actor, s.key, s.claim_token FROM idempotency_slots s ` + isExecuting + `
	WHERE s.lease_until <= now() AND r.executing IS NULL
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
