package sqlite

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

var (
	decision = store.Token{9}

	resolutions = map[string]store.Resolution{
		"completed":    {Completion: new(completion("found")), By: "olivia", Reason: "found"},
		"not executed": {By: "olivia", Reason: "not found"},
	}
)

// unknown makes a record whose outcome is unknown.
func unknown(t testing.TB, e *Engine, draft store.Draft) *store.Record {
	t.Helper()
	claim(t, e, draft)
	require.NoError(t, e.MarkUnknown(t.Context(), draft.Identity, draft.Token, store.Doubt{Reason: "timeout"}))
	return read(t, e, draft.Identity)
}

func count(t testing.TB, e *Engine, from string) (n int) {
	t.Helper()
	require.NoError(t, e.readers.QueryRowContext(t.Context(), "SELECT count(*) FROM "+from).Scan(&n))
	return n
}

// What is decided and not written down would be a record that changed by itself.
func TestDecisionThatCannotBeAuditedIsNone(t *testing.T) {
	for obstacle, sql := range map[string]string{
		"the audit is gone": "DROP TABLE idempotency_audit",
		"the audit refuses": `CREATE TRIGGER refuse BEFORE INSERT ON idempotency_audit
			WHEN NEW.decided_by = 'olivia' BEGIN SELECT RAISE(ABORT, 'refused'); END`,
	} {
		for name, resolution := range resolutions {
			t.Run(obstacle+", "+name, func(t *testing.T) {
				path := databasePath(t)
				e := open(t, Config{Path: path})
				before := unknown(t, e, newDraft("K1"))
				mustExec(t, intrude(t, path), sql)

				err := e.Resolve(t.Context(), before.Identity, before.Token, decision, resolution)

				requireFailure(t, store.Rejected, err)
				after := read(t, e, before.Identity)
				before.Now, after.Now = time.Time{}, time.Time{}
				require.Equal(t, before, after)
				claim(t, e, newDraft("K2")) // the writer goes on
			})
		}
	}
}

func resolveJob(id store.Identity, token store.Token) *job {
	key := []any{id.Tenant, id.Actor, id.Operation, id.Key}
	return &job{
		steps: []step{
			{resolveReleased, append(key, token[:])},
			{addAudit, append(key, decision[:], "olivia", "not found", "", nil)},
		},
		result: make(chan result, 1),
	}
}

// Alone or with others in one commit, a job of several statements takes effect as a
// whole, and the others do not suffer for it.
func TestJobOfSeveralStatementsIsAllOrNothing(t *testing.T) {
	for name, others := range map[string]int{"alone": 0, "in a shared commit": 2} {
		for outcome, refuse := range map[string]bool{"succeeds": false, "fails": true} {
			t.Run(name+", "+outcome, func(t *testing.T) {
				path := databasePath(t)
				e := open(t, Config{Path: path})
				record := unknown(t, e, newDraft("K1"))
				if refuse {
					mustExec(t, intrude(t, path), `CREATE TRIGGER refuse BEFORE INSERT ON idempotency_audit
						BEGIN SELECT RAISE(ABORT, 'refused'); END`)
				}
				batch := []*job{resolveJob(record.Identity, record.Token)}
				if others > 0 {
					batch = []*job{claimJob(newDraft("before")), batch[0], claimJob(newDraft("after"))}
				}

				commitAtOnce(t, e, batch)

				for n, j := range batch {
					r := <-j.result
					if j.steps[0].sql == resolveReleased && refuse {
						requireFailure(t, store.Rejected, failed("resolving", r.err))
						continue
					}
					require.Equal(t, result{moved: 1}, r, n)
				}
				left := map[bool]int{true: 1, false: 0}[refuse]
				require.Equal(t, left, count(t, e, "idempotency_records WHERE key = 'K1'"))
				require.Equal(t, 1-left, count(t, e, "idempotency_audit"))
				require.Equal(t, others, count(t, e, "idempotency_records WHERE state = 'executing'"))
			})
		}
	}
}

// commitAtOnce commits a batch with the engine's own writer, which must be idle.
func commitAtOnce(t *testing.T, e *Engine, batch []*job) {
	t.Helper()
	w := newWriter(e.writer.db)
	w.commit(append([]*job(nil), batch...))
	for _, statement := range w.statements {
		require.NoError(t, statement.Close())
	}
}

func TestJobWhoseFirstStatementMovesNothingEndsThere(t *testing.T) {
	for name, others := range map[string]int{"alone": 0, "in a shared commit": 1} {
		t.Run(name, func(t *testing.T) {
			e := open(t, Config{})
			record := unknown(t, e, newDraft("K1"))
			batch := []*job{resolveJob(record.Identity, store.Token{1})}
			for range others {
				batch = append(batch, claimJob(newDraft("K2")))
			}

			commitAtOnce(t, e, batch)

			require.Equal(t, result{}, <-batch[0].result)
			require.Zero(t, count(t, e, "idempotency_audit"))
			require.Equal(t, store.Unknown, read(t, e, record.Identity).State)
		})
	}
}

// A clash of business identities is no error, which would give each of the claims
// that share its commit a commit of its own.
func TestClashOfBusinessIdentitiesStaysInItsCommit(t *testing.T) {
	w := idleWriter(t)
	natural := func(key, natural string) *job {
		j := claimJob(newDraft(key))
		j.steps[0].args[10] = natural
		return j
	}
	batch := []*job{natural("K1", "R-1"), natural("K2", "R-1"), natural("K1", "R-2"), natural("K3", "R-2")}
	for _, j := range batch {
		require.NoError(t, w.prepare(j))
	}

	results, err := w.together(batch)

	require.NoError(t, err)
	require.Equal(t, []result{{moved: 1}, {}, {}, {moved: 1}}, results)
}

func TestDecisionIsMadeOnceHoweverOftenItIsSent(t *testing.T) {
	for name, resolution := range resolutions {
		t.Run(name, func(t *testing.T) {
			e := open(t, Config{})
			record := unknown(t, e, newDraft("K1"))
			for range 3 {
				require.NoError(t, e.Resolve(t.Context(), record.Identity, record.Token, decision, resolution))
			}
			require.Equal(t, store.ErrNotHeld, e.Resolve(t.Context(), record.Identity, record.Token, store.Token{8}, resolution))
			require.Equal(t, 1, count(t, e, "idempotency_audit"))
		})
	}
}

// What somebody took and gave back since it was found due is left to the next time.
func TestTakerLeavesOutWhatIsNotDueAnyMore(t *testing.T) {
	e := open(t, Config{})
	found := unknown(t, e, newDraft("K1"))
	take := func() error {
		return e.take(t.Context(), takeDue, found.Identity, found.Token, time.Hour, found.Verifications)
	}
	require.NoError(t, e.TakeForProbe(t.Context(), found.Identity, found.Token, -time.Hour))
	require.ErrorIs(t, take(), store.ErrNotHeld, "verified since")

	found = read(t, e, found.Identity)
	require.NoError(t, e.PutOff(t.Context(), found.Identity, found.Token, time.Hour))
	require.ErrorIs(t, take(), store.ErrNotHeld, "put off")

	require.NoError(t, e.PutOff(t.Context(), found.Identity, found.Token, 0))
	require.NoError(t, take())
}

func TestWaysOutUseTheirIndexes(t *testing.T) {
	e := open(t, Config{})
	of := []any{"acme", "alice", "create-order", "K1"}
	token := decision[:]
	with := func(first []any, more ...any) []any { return append(append([]any{}, first...), more...) }
	for name, c := range map[string]struct {
		sql   string
		args  []any
		index string
	}{
		"list unknown":            {listUnknown + unknownPage, []any{"unknown", 0, "", "", 10}, "idempotency_records_unknown"},
		"list unknown, next page": {listUnknown + unknownAfter + unknownPage, with([]any{"unknown", 0, "", "", 10, 1}, of...), "idempotency_records_unknown"},
		"list others":             {listOthers + othersPage, []any{"completed", 0, "", "", 10}, "sqlite_autoindex_idempotency_records_1"},
		"list others, next page": {listOthers + othersAfter + othersPage, with([]any{"completed", 0, "", "", 10}, of...),
			"SEARCH idempotency_records USING INDEX sqlite_autoindex_idempotency_records_1 ((tenant,actor,operation,key)>(?,?,?,?))"},
		"find due":          {dueUnknown, []any{`["pay"]`, 10}, "idempotency_records_verify (operation=? AND verify_at<?)"},
		"take due":          {takeDue, with(of, token, 1, 1), "sqlite_autoindex_idempotency_records_1"},
		"put off":           {putOff, with(of, token, 1), "sqlite_autoindex_idempotency_records_1"},
		"resolve completed": {resolveCompleted, with(of, token, token, 201, nil, nil, nil, 1, 1), "sqlite_autoindex_idempotency_records_1"},
		"resolve released":  {resolveReleased, with(of, token), "sqlite_autoindex_idempotency_records_1"},
		"natural key":       {naturalKeyHolder, []any{"acme", "pay", "R-1", "alice", "K1"}, "idempotency_records_natural (tenant=? AND operation=? AND natural_key=?)"},
		"decided":           {decided, with(of, token), "idempotency_audit_record (tenant=? AND actor=? AND operation=? AND key=?)"},
		"audit":             {audit, of, "idempotency_audit_record (tenant=? AND actor=? AND operation=? AND key=?)"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planOf(t, e, c.sql, c.args...)
			require.Contains(t, plan, c.index)
			require.NotRegexp(t, `SCAN idempotency_(records|audit)(\n|$)`, plan, "reads the whole table")
			if name != "find due" { // which sorts what is due of several operations
				require.NotContains(t, plan, "TEMP B-TREE FOR ORDER BY", "sorts")
			}
		})
	}
}

const (
	// recordsOfVersion1 are what a program of the first schema has left behind.
	recordsOfVersion1 = `
INSERT INTO idempotency_records (tenant, actor, operation, key, state, claim_token,
	fingerprint_algorithm, fingerprint_version, fingerprint, claimed_at, lease_until,
	settled_at, unknown_since, replay_until, keep_until, status, resource, reason, response_header, response_body)
VALUES
	('acme', 'alice', 'create-order', 'executing', 'executing', randomblob(16), 1, 'v1', zeroblob(32), 1, 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
	('acme', 'alice', 'create-order', 'completed', 'completed', randomblob(16), 1, 'v1', zeroblob(32), 1, 2, 2, NULL, 9e12, NULL, 201, '/orders/1', NULL, x'413a20310d0a', x'7b7d'),
	('acme', 'alice', 'create-order', 'unknown', 'unknown', randomblob(16), 1, 'v1', zeroblob(32), 1, 2, 2, 2, NULL, NULL, 502, NULL, 'timeout', NULL, NULL),
	('acme', 'alice', 'create-order', 'expired', 'expired', randomblob(16), 1, 'v1', zeroblob(32), 1, 2, 2, NULL, 3, 4, 201, '/orders/2', NULL, NULL, NULL)`

	// everyRow is each row as the first schema knows it.
	everyRow = `
SELECT group_concat(concat_ws('|', tenant, actor, operation, key, state, hex(claim_token), fingerprint_algorithm, fingerprint_version,
	hex(fingerprint), claimed_at, lease_until, settled_at, unknown_since, replay_until, keep_until, status, resource, reason,
	hex(response_header), hex(response_body)), char(10) ORDER BY key)
FROM idempotency_records`
)

func TestUpgradeFromVersion1KeepsEveryRecord(t *testing.T) {
	path := t.TempDir() + "/idempotency.db"
	old := openPool(dsn(path, DefaultTimeout, writing), 1)
	require.NoError(t, migrate(t.Context(), old, migrations()[:1]))
	mustExec(t, old, recordsOfVersion1)
	var before, after string
	require.NoError(t, old.QueryRowContext(t.Context(), everyRow).Scan(&before))
	require.NoError(t, old.Close())

	upgraded := open(t, Config{Path: path})

	require.NoError(t, upgraded.readers.QueryRowContext(t.Context(), everyRow).Scan(&after))
	require.Equal(t, before, after)
	taken, err := upgraded.TakeUnknown(t.Context(), []string{"create-order"}, time.Hour, 10)
	require.NoError(t, err)
	require.Len(t, taken, 1, "what was unknown before is as due as any")
	require.Equal(t, "unknown", taken[0].Key)
	for _, sweep := range []func() (int, error){
		func() (int, error) { return upgraded.Abandon(t.Context(), 10) },
		func() (int, error) { return upgraded.Purge(t.Context(), 10) },
	} {
		moved, err := sweep()
		require.NoError(t, err)
		require.Equal(t, 1, moved)
	}
	stats, err := upgraded.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[store.State]int64{store.Executing: 0, store.Completed: 1, store.Unknown: 2, store.Expired: 0}, stats.Records)
}
