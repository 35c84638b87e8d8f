package main

import (
	"context"
	"database/sql"
	"fmt"
)

// Records that are there before a measurement: those of a gateway which has served
// for long. Their keys lie evenly between those that the clients make up, so that
// each new key goes into a page of its own of the index. Nine of ten are
// tombstones, the last one still holds its response, and a hundred in all are
// unknown outcomes; unless all are completed because they are to expire.
//
// The statements give each record what the engines would have given it. They are
// not the engines' own, which would take hours for ten million.

// fill is what is loaded.
type fill struct {
	records int

	// expireIn makes all records completed ones, whose windows end together, so
	// many seconds after the load began. 0 for the mixture.
	expireIn int
}

const postgresFill = `
INSERT INTO idempotency_records (tenant, actor, operation, key, state, claim_token,
	fingerprint_algorithm, fingerprint_version, fingerprint, claimed_at, lease_until,
	settled_at, unknown_since, verify_at, replay_until, status, resource)
SELECT 'default', 'shared', 'create-order',
	lpad(to_hex(n * %[2]d), 15, '0') || 'filled-in-before-',
	CASE WHEN doubt THEN 'unknown' WHEN live THEN 'completed' ELSE 'expired' END, gen_random_uuid(),
	1, 'v1', sha256(n::text::bytea), now() - interval '1 hour', now() - interval '59 minutes',
	now() - interval '1 hour', CASE WHEN doubt THEN now() - interval '1 hour' END, CASE WHEN doubt THEN now() - interval '1 hour' END,
	CASE WHEN NOT doubt THEN now() + make_interval(secs => CASE WHEN live THEN %[3]d ELSE -60 END) END, 201, '/orders/4711'
FROM (SELECT n, %[4]s AS live, %[5]s AS doubt FROM generate_series(1, %[1]d) n) AS numbers`

const postgresResponses = `
INSERT INTO idempotency_responses (claim_token, tenant, header, body)
SELECT claim_token, tenant, decode(repeat('41', 90), 'hex'), decode(repeat('42', 200), 'hex')
FROM idempotency_records WHERE state = 'completed' ORDER BY claim_token`

const postgresDue = `
INSERT INTO idempotency_due (awaits, due_at, tenant, actor, operation, key, claim_token)
SELECT 'window', replay_until, tenant, actor, operation, key, claim_token
FROM idempotency_records WHERE state = 'completed'`

const sqliteFill = `
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < %[1]d)
INSERT INTO idempotency_records (tenant, actor, operation, key, state, claim_token,
	fingerprint_algorithm, fingerprint_version, fingerprint, claimed_at, lease_until,
	settled_at, unknown_since, verify_at, replay_until, status, resource, response_header, response_body)
SELECT 'default', 'shared', 'create-order',
	printf('%%015x', n * %[2]d) || 'filled-in-before-',
	CASE WHEN %[5]s THEN 'unknown' WHEN %[4]s THEN 'completed' ELSE 'expired' END, randomblob(16),
	1, 'v1', randomblob(32), (unixepoch() - 3600) * 1000, (unixepoch() - 3540) * 1000,
	(unixepoch() - 3600) * 1000, CASE WHEN %[5]s THEN (unixepoch() - 3600) * 1000 END, CASE WHEN %[5]s THEN (unixepoch() - 3600) * 1000 END,
	CASE WHEN NOT (%[5]s) THEN (unixepoch() + CASE WHEN %[4]s THEN %[3]d ELSE -60 END) * 1000 END, 201, '/orders/4711',
	CASE WHEN %[4]s THEN randomblob(90) END, CASE WHEN %[4]s THEN randomblob(200) END
FROM numbers`

func (f fill) statement(template string) string {
	unknown := fmt.Sprintf("n %% %d = 0", max(f.records/100, 2))
	live, window := "n % 10 = 1", 24*60*60
	if f.expireIn > 0 {
		live, unknown, window = "n > 0", "n < 0", f.expireIn
	}
	return fmt.Sprintf(template, f.records, (int64(1)<<60-1)/int64(f.records), window, live, unknown)
}

// fill loads records into a place that no gateway uses at this moment.
func (b *bench) fill(p *place, f fill) error {
	b.say("loading %d records into %s", f.records, p.kind)
	if p.kind == onSQLite {
		return f.intoSQLite(b.ctx, p.path)
	}
	return execute(b.ctx, p.dsn, "SET synchronous_commit = off", f.statement(postgresFill), postgresResponses, postgresDue,
		"VACUUM (ANALYZE) idempotency_records", "VACUUM (ANALYZE) idempotency_responses", "VACUUM (ANALYZE) idempotency_due", "CHECKPOINT")
}

// intoSQLite puts the trigger that counts aside: it would run for each row.
func (f fill) intoSQLite(ctx context.Context, path string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	const trigger = "idempotency_count_insert"
	var definition string
	if err := db.QueryRow(`SELECT sql FROM sqlite_master WHERE name = ?`, trigger).Scan(&definition); err != nil {
		return err
	}
	for _, statement := range []string{
		`PRAGMA synchronous = off`, `PRAGMA cache_size = -262144`,
		`DROP TRIGGER ` + trigger, f.statement(sqliteFill), definition,
		`UPDATE idempotency_counts SET records = (SELECT count(*) FROM idempotency_records r WHERE r.state = idempotency_counts.state)`,
		`ANALYZE`, `PRAGMA wal_checkpoint(TRUNCATE)`,
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
