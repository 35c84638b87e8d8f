package postgres_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
)

// opens tells how it goes to open an engine that is not wanted.
func opens(t *testing.T, config postgres.Config) error {
	t.Helper()
	engine, err := postgres.Open(t.Context(), config)
	if err == nil {
		require.NoError(t, engine.Close())
	}
	return err
}

func TestInstancesThatStartAtOnceMigrateOnce(t *testing.T) {
	const instances, rounds = 8, 5
	db := pgtest.New(t)
	for range rounds {
		db.Empty(t)
		engines := make([]*postgres.Engine, instances)
		var started sync.WaitGroup
		for n := range engines {
			started.Go(func() {
				config := patient(db)
				config.MaxConns = 2
				var err error
				if engines[n], err = postgres.Open(t.Context(), config); err != nil {
					t.Errorf("instance %d: %v", n, err)
				}
			})
		}
		started.Wait()
		for _, engine := range engines {
			if engine != nil {
				require.NoError(t, engine.Close())
			}
		}
		require.Equal(t, len(postgres.Migrations()), pgtest.Get[int](t, db, `SELECT count(*) FROM idempotency_migrations`))
	}
}

func TestRoleThatMayReadAndWriteTheTablesIsEnoughToServe(t *testing.T) {
	db := pgtest.New(t)
	open(t, patient(db)).Close()
	config := patient(db)
	config.DSN = db.Role(t,
		"SELECT, INSERT, UPDATE, DELETE ON idempotency_records, idempotency_responses, idempotency_due, idempotency_quotas, idempotency_slots",
		"SELECT, INSERT ON idempotency_audit, idempotency_settings",
		"SELECT ON idempotency_migrations")

	for _, skip := range []bool{true, false} { // there is nothing to migrate
		config.SkipMigrations = skip
		t.Run(map[bool]string{true: "with migrations off", false: "with migrations on"}[skip], func(t *testing.T) {
			s := newSceneWith(t, db, config)
			s.has(over, answer(over))
			require.Equal(t, store.Expired, s.record().State)
			for _, sweep := range []func() (int, error){
				func() (int, error) { return s.engine.Abandon(t.Context(), 10) },
				func() (int, error) { return s.engine.Expire(t.Context(), 10) },
				func() (int, error) { return s.engine.Purge(t.Context(), 10) },
			} {
				_, err := sweep()
				require.NoError(t, err)
			}
			stats, err := s.engine.Stats(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 1, stats.Records[store.Expired])
			s.rivalRuns(release)()
			s.takesEveryWayOut()
		})
	}
}

func TestMigrationsAppliedByHandAreEnough(t *testing.T) {
	db := pgtest.New(t)
	db.Exec(t, postgres.MigrationsTable)
	for _, migration := range postgres.Migrations() {
		conn := db.Conn(t)
		_, err := conn.PgConn().Exec(t.Context(), migration.SQL+";"+postgres.Bookkeeping(migration)).ReadAll()
		require.NoError(t, err)
	}
	config := patient(db)
	config.SkipMigrations = true

	newSceneWith(t, db, config).has(ample, answer(ample))
}

func TestSchemaThatIsNotThisProgramsIsRefused(t *testing.T) {
	for name, story := range map[string]struct {
		given string
		skip  bool
		newer bool
	}{
		"missing, with migrations off": {given: `SELECT 1`, skip: true},
		"newer, with migrations on":    {given: postgres.MigrationsTable + `; INSERT INTO idempotency_migrations VALUES (9999, 'future')`, newer: true},
		"newer, with migrations off":   {given: postgres.MigrationsTable + `; INSERT INTO idempotency_migrations VALUES (9999, 'future')`, newer: true, skip: true},
	} {
		t.Run(name, func(t *testing.T) {
			db := pgtest.New(t)
			_, err := db.Conn(t).PgConn().Exec(t.Context(), story.given).ReadAll()
			require.NoError(t, err)
			config := patient(db)
			config.SkipMigrations = story.skip

			err = opens(t, config)

			var refused *store.SchemaError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, story.newer, refused.Newer())
			require.True(t, pgtest.Get[bool](t, db, `SELECT to_regclass('idempotency_records') IS NULL`), "nothing was made")
		})
	}
}

func TestRoleThatMayNotMigrateIsTold(t *testing.T) {
	db := pgtest.New(t)
	db.Exec(t, `REVOKE CREATE ON SCHEMA public FROM PUBLIC`) // as it is from PostgreSQL 15 on
	config := patient(db)
	config.DSN = db.Role(t)

	err := opens(t, config)

	var failed *store.EngineError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, store.Rejected, failed.Failure)
}
