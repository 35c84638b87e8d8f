package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
	"github.com/caddy-idempotency/caddy-idempotency/store/storetest"
)

func BenchmarkStore(b *testing.B) {
	engine := open(b, postgres.Config{DSN: pgtest.New(b).DSN})
	b.Cleanup(func() { require.NoError(b, engine.Close()) })
	storetest.Benchmark(b, engine)
}
