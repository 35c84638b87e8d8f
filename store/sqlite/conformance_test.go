package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/sqlite"
	"github.com/caddy-idempotency/caddy-idempotency/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Backend{
		Create: func(t testing.TB) func() store.Engine {
			path := filepath.Join(t.TempDir(), "idempotency.db")
			return func() store.Engine {
				engine, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
				require.NoError(t, err)
				return engine
			}
		},
		Shared: false,
	})
}
