package postgres

import (
	"github.com/jackc/pgx/v5"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// readAllSettled is readSettled for many records. LATERAL with a LIMIT looks each of
// them up by the primary key; a join might read the whole table.
const readAllSettled = `
SELECT wanted.position, r.*
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
	AS wanted (tenant, actor, operation, key, position)
CROSS JOIN LATERAL (
	SELECT ` + recordColumns + `, response_header, response_body
	FROM idempotency_records
	WHERE tenant = wanted.tenant AND actor = wanted.actor AND operation = wanted.operation AND key = wanted.key
		AND ` + settled + `
	LIMIT 1
) r`

// insertClaims is insertClaim for many records. Of two claims of one key, the
// first wins.
const insertClaims = `
WITH claimed AS (
	INSERT INTO idempotency_records (` + claimColumns + `)
	SELECT tenant, actor, operation, key, 'executing', claim_token, algorithm, version, fingerprint, members,
		now(), now() + lease * interval '1 microsecond', NULL
	FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::uuid[],
			$6::smallint[], $7::text[], $8::bytea[], $9::bytea[], $10::bigint[])
		AS c (tenant, actor, operation, key, claim_token, algorithm, version, fingerprint, members, lease)
	ON CONFLICT (tenant, actor, operation, key) DO NOTHING
	RETURNING tenant, actor, operation, key, claim_token, lease_until
), listed AS (
	INSERT INTO idempotency_due (awaits, due_at, tenant, actor, operation, key, claim_token)
	SELECT 'lease', lease_until, tenant, actor, operation, key, claim_token FROM claimed
)
SELECT claim_token FROM claimed`

// queueClaims competes for many rows, in the order of the claims. It looks first
// for records that nothing will write for a while: these are replays, the commonest
// losers, and whoever is neither found nor inserted has to read for himself.
func queueClaims(batch *pgx.Batch, claims []*member) {
	n := len(claims)
	tenants, actors, operations, keys := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	tokens, algorithms, versions := make([][16]byte, n), make([]int16, n), make([]string, n)
	sums, members, leases := make([][]byte, n), make([][]byte, n), make([]int64, n)
	for i, m := range claims {
		d := m.draft
		tenants[i], actors[i], operations[i], keys[i] = d.Tenant, d.Actor, d.Operation, d.Key
		tokens[i], algorithms[i], versions[i] = d.Token, int16(d.Fingerprint.Algorithm), d.Fingerprint.Version
		sums[i], members[i], leases[i] = d.Fingerprint.Sum[:], d.Fingerprint.Members, d.Lease.Microseconds()
	}
	batch.Queue(readAllSettled, tenants, actors, operations, keys).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			var position int
			record, err := scanRecord(rows, store.Identity{}, &position)
			if err != nil {
				return err
			}
			m := claims[position-1]
			record.Identity, m.held = m.draft.Identity, record
		}
		return rows.Err()
	})
	batch.Queue(insertClaims, tenants, actors, operations, keys, tokens, algorithms, versions, sums, members, leases).
		Query(func(rows pgx.Rows) error {
			defer rows.Close()
			won := make(map[store.Token]bool, n)
			for rows.Next() {
				var token store.Token
				if err := rows.Scan((*[16]byte)(&token)); err != nil {
					return err
				}
				won[token] = true
			}
			for _, m := range claims {
				m.won = won[m.draft.Token]
			}
			return rows.Err()
		})
}
