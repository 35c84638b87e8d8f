package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
	"github.com/caddy-idempotency/caddy-idempotency/store/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The role's default isolation is not ours to choose, and must not matter: each
// transaction pins its own.
func TestConformance(t *testing.T) {
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Set(t, "default_transaction_isolation", isolation)
			storetest.Run(t, backend(db, postgres.Config{DSN: db.DSN}))
		})
	}
}

// What a transaction pooler needs of the engine, it does without one as well.
func TestConformanceInPoolerMode(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	storetest.Run(t, backend(db, postgres.Config{DSN: db.DSN, Pooler: postgres.TransactionPooler}))
}

// Hash partitions change where a record stands, and nothing else.
func TestConformanceWithPartitions(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	b := backend(db, postgres.Config{DSN: db.DSN, SkipMigrations: true})
	inOneTable := b.Create
	b.Create = func(t testing.TB) func() store.Engine {
		next := inOneTable(t)
		applyPartitioned(t, db, 4)
		return next
	}
	storetest.Run(t, b)
}

func applyPartitioned(t testing.TB, db *pgtest.DB, partitions int) {
	t.Helper()
	sql := postgres.MigrationsTable + ";"
	for _, m := range postgres.Partitioned(partitions) {
		sql += m.SQL + ";" + postgres.Bookkeeping(m) + ";"
	}
	_, err := db.Conn(t).PgConn().Exec(t.Context(), sql).ReadAll()
	require.NoError(t, err)
}

func backend(db *pgtest.DB, config postgres.Config) storetest.Backend {
	return storetest.Backend{
		Shared: true,
		Create: func(t testing.TB) func() store.Engine {
			db.Empty(t)
			return func() store.Engine { return open(t, config) }
		},
	}
}

func open(t testing.TB, config postgres.Config) *postgres.Engine {
	t.Helper()
	engine, err := postgres.Open(t.Context(), config)
	require.NoError(t, err)
	return engine
}
