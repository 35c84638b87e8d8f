package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
)

// manyRecords are enough that reading all of them is never the better plan, with
// few unknown outcomes among them.
const (
	manyRecords = `INSERT INTO idempotency_records (tenant, actor, operation, key, state, claim_token,
			fingerprint_algorithm, fingerprint_version, fingerprint, claimed_at, lease_until,
			settled_at, unknown_since, verify_at, replay_until, natural_key, status)
		SELECT 'acme', 'actor ' || n % 100, 'create-order', 'K' || n, CASE WHEN unknown THEN 'unknown' ELSE 'completed' END, gen_random_uuid(),
			1, 'orders/v1', sha256('order'), now(), now() + interval '1 hour',
			now(), CASE WHEN unknown THEN now() END, CASE WHEN unknown THEN now() END,
			CASE WHEN NOT unknown THEN now() + interval '1 hour' END, 'R-' || n, 201
		FROM (SELECT n, n % 1000 = 0 AS unknown FROM generate_series(1, 20000) n) records`

	manyResponses = `INSERT INTO idempotency_responses (claim_token, tenant, header, body)
		SELECT claim_token, tenant, '', '' FROM idempotency_records WHERE state = 'completed'`
	manySlots = `INSERT INTO idempotency_slots (tenant, operation, actor, key, claim_token, lease_until)
		SELECT tenant || actor, operation, actor, key, claim_token, lease_until FROM idempotency_records`

	manyDecisions = `INSERT INTO idempotency_audit (decision, decided_by, reason, tenant, actor, operation, key, from_state, to_state)
		SELECT gen_random_uuid(), 'verifier', '', tenant, actor, operation, key, 'unknown', 'completed' FROM idempotency_records`
)

// What is asked often, or at ten million records, finds its rows by an index. A
// prepared statement is planned for its arguments at first, and may be planned for
// any later: both must hold.
func TestStatementsUseTheirIndexes(t *testing.T) {
	s := newScene(t)
	s.rivalRuns(manyRecords, manyResponses, manySlots, manyDecisions, `ANALYZE`)()
	const (
		of       = `'acme', 'actor 1', 'create-order', 'K1'`
		token    = `'09000000-0000-0000-0000-000000000000'`
		claim    = `'{K1}', '{09000000-0000-0000-0000-000000000000}', '{1}', '{v1}', '{""}', '{NULL}', '{1}', '{NULL}', '{actor 1}', '{0}', '{1}'`
		theTable = "Seq Scan on idempotency_records"
	)
	for name, c := range map[string]struct {
		arguments string
		index     string
	}{
		"list unknown":            {`'unknown', 0, '', '', 50`, "idempotency_records_unknown"},
		"list unknown of one":     {`'unknown', 60000000, 'acme', 'create-order', 50`, "idempotency_records_unknown"},
		"list unknown, next page": {`'unknown', 0, '', '', 50, now(), ` + of, "idempotency_records_unknown"},
		"list others":             {`'completed', 0, '', '', 50`, "idempotency_records_pkey"},
		"list others, next page":  {`'completed', 0, '', '', 50, ` + of, "Index Cond: (ROW(tenant, actor, operation, key)"},
		"read settled":            {`'{acme}', '{actor 1}', '{create-order}', '{K1}', 65536`, "idempotency_records_pkey"},
		"read response":           {`'{acme}', '{actor 1}', '{create-order}', '{K1}', 65536`, "idempotency_responses_pkey"},
		"complete": {`'{acme}', '{actor 1}', '{create-order}', '{K1}', '{09000000-0000-0000-0000-000000000000}', '{201}',
			'{NULL}', '{NULL}', '{NULL}', '{0}', '{0}'`, "idempotency_records_pkey"},
		"complete late":      {of + `, ` + token + `, 201, NULL, NULL, NULL, 0, 0`, "idempotency_records_pkey"},
		"expire":             {`100`, "idempotency_responses_pkey"},
		"take unknown":       {`'{create-order,pay}', 1000000, 8`, "idempotency_records_verify"},
		"count unknown":      {``, "idempotency_records_unknown"},
		"count executing":    {``, "idempotency_records_pkey"},
		"estimate settled":   {``, "pg_class"},
		"take for probe":     {of + `, ` + token + `, 1000000`, "idempotency_records_pkey"},
		"put off":            {of + `, ` + token + `, 1000000`, "idempotency_records_pkey"},
		"natural key holder": {`'acme', 'create-order', 'R-1', 'actor 2', 'K2'`, "idempotency_records_natural"},
		"resolve completed": {of + `, ` + token + `, ` + token + `, 'olivia', '', 201, NULL, NULL, NULL, 0, 0`,
			"idempotency_records_pkey"},
		"resolve released": {of + `, ` + token + `, ` + token + `, 'olivia', ''`, "idempotency_records_pkey"},
		"decided":          {of + `, ` + token, "idempotency_audit_record"},
		"audit":            {of, "idempotency_audit_record"},
		"lock quotas": {`'acme', 'create-order', '{actor 1}', '{K1}', '{actor 1}', '{0}'`,
			"idempotency_records_pkey"},
		"claims within":         {`'acme', 'actor 1', 'create-order', ` + claim, "idempotency_slots_pkey"},
		"claims within, tenant": {`'acme', 'actor 1', 'create-order', ` + claim, "idempotency_slots_pkey"},
		"purge slots":           {`10`, "idempotency_slots_lease"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := s.db.Conn(t)
			_, err := conn.Prepare(t.Context(), "asked", postgres.Statements[name])
			require.NoError(t, err)
			arguments := ""
			if c.arguments != "" {
				arguments = "(" + c.arguments + ")"
			}
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				_, err := conn.Exec(t.Context(), `SET plan_cache_mode = `+mode)
				require.NoError(t, err)
				rows, err := conn.Query(t.Context(), fmt.Sprintf(`EXPLAIN EXECUTE asked%s`, arguments))
				require.NoError(t, err)
				var plan strings.Builder
				for rows.Next() {
					var line string
					require.NoError(t, rows.Scan(&line))
					fmt.Fprintln(&plan, line)
				}
				require.NoError(t, rows.Err())
				require.Contains(t, plan.String(), c.index, mode)
				require.NotContains(t, plan.String(), theTable, mode)
				require.NotContains(t, plan.String(), "Seq Scan on idempotency_audit", mode)
				require.NotContains(t, plan.String(), "Seq Scan on idempotency_responses", mode)
				require.NotContains(t, plan.String(), "Seq Scan on idempotency_slots", mode)
			}
		})
	}
}

// A connection keeps the plan that it made when there were no records yet, until
// autovacuum comes by for the first time: it has to be one for many.
func TestPlanMadeForEmptyTablesLooksEachRecordUp(t *testing.T) {
	s := newScene(t)
	for name, arguments := range map[string]string{
		"complete":     `'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'`,
		"read settled": `'{}', '{}', '{}', '{}', 65536`,
		"abandon":      `100`,
		"expire":       `100`,
		"purge":        `100`,
		"advance":      `'lease', 100`,
	} {
		t.Run(name, func(t *testing.T) {
			s.rivalRuns(`BEGIN`, strings.NewReplacer("$1", "'1s'", "$2", "'1s'").Replace(postgres.ByIndex),
				`PREPARE asked AS `+postgres.Statements[name])()
			plan := s.plan(`EXPLAIN EXECUTE asked(` + arguments + `)`)
			s.rivalRuns(`ROLLBACK`, `DEALLOCATE asked`)()

			require.Contains(t, plan, "Index Scan using idempotency_records_pkey")
			require.Contains(t, plan, "Nested Loop")
			require.NotRegexp(t, "Seq Scan|Hash|Merge", plan)
		})
	}
}

// plan asks the rival's session.
func (s *scene) plan(explain string) string {
	s.Helper()
	rows, err := s.rival.Query(s.Context(), explain)
	require.NoError(s, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s, err)
	return strings.Join(lines, "\n")
}

// The routine way touches no indexed column, so that a completion stays on its
// page: a HOT update. Who verifies an outcome does not either.
func TestRoutineCompletionAndProbesAreHOTUpdates(t *testing.T) {
	const records, probes = 40, 5
	s := newScene(t)
	const updates = `SELECT n_tup_upd >= $1 FROM pg_stat_user_tables WHERE relname = 'idempotency_records'`
	const others = `SELECT n_tup_upd - n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'idempotency_records'`
	for n := range records {
		d := natural(fmt.Sprint("many ", n), store.Token{1, byte(n)})
		d.NaturalKey = fmt.Sprint("R-", n)
		won, _, err := s.engine.Claim(t.Context(), d)
		require.NoError(t, err)
		require.True(t, won)
		require.NoError(t, s.engine.Complete(t.Context(), d.Identity, d.Token, *answer(ample)))
	}
	// A session tells what it did when it ends, at the latest.
	require.NoError(t, s.engine.Close())
	s.db.WaitFor(t, updates, records)
	require.Zero(t, pgtest.Get[int](t, s.db, others), "completions that were no HOT updates")

	s = newSceneWith(t, s.db, patient(s.db))
	seen := s.unknown()
	for range probes {
		require.NoError(t, s.store.TakeForProbe(t.Context(), seen, over))
	}
	require.NoError(t, s.engine.Close())
	s.db.WaitFor(t, updates, records+1+probes)
	require.LessOrEqual(t, pgtest.Get[int](t, s.db, others), 1, "the doubt alone is indexed")
}

// A claim without a business identity has no entry in the index over them.
func TestBusinessIdentityOfNoneIsNotIndexed(t *testing.T) {
	s := newScene(t)
	s.has(ample, answer(ample))
	require.True(t, pgtest.Get[bool](t, s.db, `SELECT natural_key IS NULL FROM idempotency_records`))
	require.Empty(t, s.record().NaturalKey)
	require.Equal(t, store.Completed, s.record().State)
}

// A connection keeps its plans from when the tables were empty, and so does a claim
// what it costs: the records of its key and of the slots, and no others of the actor.
func TestWhatAClaimWithinQuotasReadsDoesNotGrowWithTheTable(t *testing.T) {
	const claims, each = 20, 10
	db := pgtest.New(t)
	config := patient(db)
	config.MaxConns = 1
	s := newSceneWith(t, db, config)
	quotas := []store.Quota{{Max: 10 * claims}, {Max: 10 * claims, PerTenant: true}, {Max: 10 * claims, Window: ages}}
	claim := func(n int) {
		d := draft(store.Token{byte(n + 1)})
		d.Key, d.Actor, d.Quotas = fmt.Sprint("key ", n), "actor 1", quotas
		won, _, err := s.engine.Claim(t.Context(), d)
		require.NoError(t, err)
		require.True(t, won)
		require.NoError(t, s.engine.Complete(t.Context(), d.Identity, d.Token, *answer(ample)))
	}
	for n := range claims {
		claim(n)
	}
	s.rivalRuns(manyRecords)()
	for n := range claims {
		claim(claims + n)
	}

	require.NoError(t, s.engine.Close()) // a session tells what it did when it ends, at the latest
	db.WaitFor(t, `SELECT n_tup_upd >= $1 FROM pg_stat_user_tables WHERE relname = 'idempotency_records'`, 2*claims)
	require.Less(t, pgtest.Get[int](t, db, `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables
		WHERE relname = 'idempotency_records'`), 2*claims*each)
}
