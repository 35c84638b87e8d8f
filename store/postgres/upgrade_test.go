package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
)

// recordsOfVersion1 are what a program of the first schema has left behind: one
// record in each state, with what time will do to it.
const recordsOfVersion1 = `
INSERT INTO idempotency_records (tenant, actor, operation, key, state, claim_token,
	fingerprint_algorithm, fingerprint_version, fingerprint, fingerprint_members, claimed_at, lease_until,
	settled_at, unknown_since, replay_until, keep_until, status, resource, reason, response_header, response_body)
SELECT 'acme', 'alice', 'create-order', state, state, '01000000-0000-0000-0000-000000000000',
	1, 'orders/v1', sha256('order'), '\x0102', now() - interval '2 hours', now() - interval '1 hour',
	settled_at, unknown_since, replay_until, keep_until, status, resource, reason, header, body
FROM (VALUES
	('executing', NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::smallint, NULL, NULL, NULL::bytea, NULL::bytea),
	('completed', now(), NULL, now() + interval '1 hour', now() + interval '2 hours', 201, '/orders/1', NULL, E'Location: /orders/1\r\n', '{"id":1}'),
	('unknown', now(), now() - interval '1 hour', NULL, NULL, 502, NULL, 'timeout', NULL, NULL),
	('expired', now(), NULL, now() - interval '1 hour', now() - interval '1 minute', 201, '/orders/2', NULL, NULL, NULL)
) AS v (state, settled_at, unknown_since, replay_until, keep_until, status, resource, reason, header, body);

INSERT INTO idempotency_due (awaits, due_at, tenant, actor, operation, key, claim_token)
SELECT CASE state WHEN 'executing' THEN 'lease' WHEN 'completed' THEN 'window' ELSE 'tombstone' END,
	coalesce(CASE state WHEN 'expired' THEN keep_until ELSE replay_until END, lease_until),
	tenant, actor, operation, key, claim_token
FROM idempotency_records WHERE state <> 'unknown'`

// columnsOfVersion1 is every row as the first schema knows it, without the response.
const columnsOfVersion1 = `
SELECT string_agg(ROW(tenant, actor, operation, key, state, claim_token, fingerprint_algorithm, fingerprint_version,
	fingerprint, fingerprint_members, claimed_at, lease_until, settled_at, unknown_since, replay_until, keep_until,
	status, resource, reason)::text, E'\n' ORDER BY key)
FROM idempotency_records`

func TestUpgradeFromVersion1KeepsEveryRecord(t *testing.T) {
	db := pgtest.New(t)
	first := postgres.Migrations()[0]
	_, err := db.Conn(t).PgConn().Exec(t.Context(), postgres.MigrationsTable+";"+first.SQL+";"+postgres.Bookkeeping(first)).ReadAll()
	require.NoError(t, err)
	_, err = db.Conn(t).PgConn().Exec(t.Context(), recordsOfVersion1).ReadAll()
	require.NoError(t, err)
	before := pgtest.Get[string](t, db, columnsOfVersion1)

	s := newSceneWith(t, db, patient(db))

	require.Equal(t, len(postgres.Migrations()), pgtest.Get[int](t, db, `SELECT max(version) FROM idempotency_migrations`))
	require.Equal(t, before, pgtest.Get[string](t, db, columnsOfVersion1))
	for _, state := range store.States {
		record, err := s.engine.Read(t.Context(), of(state))
		require.NoError(t, err)
		require.Equal(t, state, record.State)
		require.Equal(t, fingerprint.Sum, record.Fingerprint.Sum)
		require.Empty(t, record.NaturalKey)
		require.Zero(t, record.Verifications)
	}

	// The outcome that was unknown before is as due as any.
	taken, err := s.store.TakeUnknown(t.Context(), []string{identity.Operation}, over, 10)
	require.NoError(t, err)
	require.Len(t, taken, 1)
	require.Equal(t, of(store.Unknown), taken[0].Identity)
	require.NoError(t, s.store.Resolve(t.Context(), taken[0], notFound))
	for name, sweep := range map[string]func() (int, error){
		"abandon": func() (int, error) { return s.engine.Abandon(t.Context(), 10) },
		"purge":   func() (int, error) { return s.engine.Purge(t.Context(), 10) },
	} {
		moved, err := sweep()
		require.NoError(t, err, name)
		require.Equal(t, 1, moved, name)
	}
	record, err := s.engine.Read(t.Context(), of(store.Completed))
	require.NoError(t, err)
	require.Equal(t, answer(0).Response, record.Response)
}

// of is the record of the first version in that state.
func of(state store.State) store.Identity {
	id := identity
	id.Key = string(state)
	return id
}

func TestUpgradeThatFailsLeavesVersion1(t *testing.T) {
	db := pgtest.New(t)
	first := postgres.Migrations()[0]
	_, err := db.Conn(t).PgConn().Exec(t.Context(), postgres.MigrationsTable+";"+first.SQL+";"+postgres.Bookkeeping(first)).ReadAll()
	require.NoError(t, err)
	db.Exec(t, `CREATE TABLE idempotency_audit (somebody_elses text)`)

	err = opens(t, patient(db))

	require.ErrorContains(t, err, "0002_ways_out")
	require.Equal(t, 1, pgtest.Get[int](t, db, `SELECT max(version) FROM idempotency_migrations`))
	require.Zero(t, pgtest.Get[int](t, db, `SELECT count(*) FROM information_schema.columns
		WHERE table_name = 'idempotency_records' AND column_name = 'natural_key'`))
}
