package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// readAllSettled is readSettled for many records. LATERAL with a LIMIT looks each of
// them up by the primary key; a join might read the whole table.
const readAllSettled = `
SELECT wanted.position, r.*
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
	AS wanted (tenant, actor, operation, key, position)
CROSS JOIN LATERAL (
	` + selectRecord + `
	WHERE tenant = wanted.tenant AND actor = wanted.actor AND operation = wanted.operation AND key = wanted.key
		AND ` + replayable + ` AND coalesce(octet_length(body), 0) <= $5
	LIMIT 1
) r`

// insertClaims competes for many rows. The conflict target is named, so that no
// other constraint can ever be mistaken for a lost claim, and a loser writes
// nothing: no WAL, no transaction id. Of two claims of one key, the first wins.
const insertClaims = `
WITH claimed AS (
	INSERT INTO idempotency_records (
		tenant, actor, operation, key, state, claim_token,
		fingerprint_algorithm, fingerprint_version, fingerprint, fingerprint_members,
		claimed_at, lease_until, natural_key)
	SELECT tenant, actor, operation, key, 'executing', claim_token, algorithm, version, fingerprint, members,
		now(), now() + lease * interval '1 microsecond', natural_key
	FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::uuid[],
			$6::smallint[], $7::text[], $8::bytea[], $9::bytea[], $10::bigint[], $11::text[])
		AS c (tenant, actor, operation, key, claim_token, algorithm, version, fingerprint, members, lease, natural_key)
	ON CONFLICT (tenant, actor, operation, key) DO NOTHING
	RETURNING tenant, actor, operation, key, claim_token, lease_until
), listed AS (
	INSERT INTO idempotency_due (awaits, due_at, tenant, actor, operation, key, claim_token)
	SELECT 'lease', lease_until, tenant, actor, operation, key, claim_token FROM claimed
)
SELECT claim_token FROM claimed`

// write runs claims and settlements in one transaction.
//
// No two of these wait for each other in a circle: claims come first, in the order
// of their keys, and settlements after them, which change rows that no claim under
// way has made.
func (e *Engine) write(claims, settlements []*member) error {
	slices.SortFunc(claims, inKeyOrder)
	return e.share(durable, func(batch *pgx.Batch) {
		if len(claims) > 0 {
			queueClaims(batch, claims)
		}
		queueSettlements(batch, settlements)
	})
}

// readSettled reads the records of lost claims, as far as they are settled.
func (e *Engine) readSettled(lost, _ []*member) error {
	return e.share(lazy, func(batch *pgx.Batch) { queueReads(batch, lost) })
}

// share sends a transaction that belongs to several calls, and waits for a lock but
// briefly.
func (e *Engine) share(settings settings, queue func(*pgx.Batch)) error {
	return refusedForOne(e.shareWithin(min(sharedLockTimeout, e.config.LockTimeout), settings, queue))
}

// shareWithin leaves as much of the call's time for waiting before as for itself.
func (e *Engine) shareWithin(lock time.Duration, settings settings, queue func(*pgx.Batch)) error {
	within := limits{lock: min(lock, e.config.Timeout/2), all: e.config.Timeout / 2}
	return e.inTxWithin(context.Background(), within, "sharing a transaction", settings+byIndex, queue)
}

// refusedForOne tells by errApart that the server refuses the transaction for the sake
// of one of its calls: each is left to itself.
func refusedForOne(err error) error {
	var pg *pgconn.PgError
	var corrupt *store.CorruptError
	if errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR" || errors.As(err, &corrupt) {
		return errApart
	}
	return err
}

// queueClaims competes for many rows. All of the claims have quotas, or none.
func queueClaims(batch *pgx.Batch, claims []*member) {
	if len(claims[0].draft.Quotas) > 0 {
		queueWithin(batch, claims)
		return
	}
	tenants, actors, operations, keys := identities(claims)
	args := append([]any{tenants, actors, operations, keys}, claimColumns(claims)...)
	batch.Queue(insertClaims, args...).Query(returnedTokens(func(won map[store.Token]bool) {
		for _, m := range claims {
			m.won = won[m.draft.Token]
			m.lost = !m.won
		}
	}))
}

// claimColumns are what a claim knows of its record, besides the identity.
func claimColumns(claims []*member) []any {
	n := len(claims)
	tokens, algorithms, versions := make([][16]byte, n), make([]int16, n), make([]string, n)
	sums, members, leases, naturals := make([][]byte, n), make([][]byte, n), make([]int64, n), make([]*string, n)
	for i, m := range claims {
		d := m.draft
		tokens[i], algorithms[i], versions[i] = d.Token, int16(d.Fingerprint.Algorithm), d.Fingerprint.Version
		sums[i], members[i], leases[i] = d.Fingerprint.Sum[:], d.Fingerprint.Members, d.Lease.Microseconds()
		naturals[i] = orNull(d.NaturalKey)
	}
	return []any{tokens, algorithms, versions, sums, members, leases, naturals}
}

// returnedTokens gives the tokens that a statement returns, unless it failed.
func returnedTokens(use func(map[store.Token]bool)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		defer rows.Close()
		tokens := map[store.Token]bool{}
		for rows.Next() {
			var token store.Token
			if err := rows.Scan((*[16]byte)(&token)); err != nil {
				return err
			}
			tokens[token] = true
		}
		if rows.Err() == nil {
			use(tokens)
		}
		return rows.Err()
	}
}

// queueReads leaves those alone that are not settled.
func queueReads(batch *pgx.Batch, lost []*member) {
	tenants, actors, operations, keys := identities(lost)
	batch.Queue(readAllSettled, tenants, actors, operations, keys, maxShared).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			var position int
			record, err := scanRecord(rows, store.Identity{}, &position)
			if err != nil {
				return err
			}
			m := lost[position-1]
			record.Identity, m.held = m.draft.Identity, record
		}
		return rows.Err()
	})
}

func identities(members []*member) (tenants, actors, operations, keys []string) {
	for _, m := range members {
		tenants = append(tenants, m.draft.Tenant)
		actors = append(actors, m.draft.Actor)
		operations = append(operations, m.draft.Operation)
		keys = append(keys, m.draft.Key)
	}
	return tenants, actors, operations, keys
}

func inKeyOrder(a, b *member) int {
	return cmp.Or(
		cmp.Compare(a.draft.Tenant, b.draft.Tenant),
		cmp.Compare(a.draft.Actor, b.draft.Actor),
		cmp.Compare(a.draft.Operation, b.draft.Operation),
		cmp.Compare(a.draft.Key, b.draft.Key),
		bytes.Compare(a.draft.Token[:], b.draft.Token[:]),
	)
}
