package caddymodule

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/sealed"
	"github.com/caddy-idempotency/caddy-idempotency/store/sqlite"
)

// oneFile opens an SQLite store, which one engine at a time can have open.
type oneFile string

func (f oneFile) Open(ctx context.Context) (store.Engine, error) {
	return sqlite.Open(ctx, sqlite.Config{Path: string(f)})
}
func (f oneFile) Place() string            { return string(f) }
func (oneFile) CallTimeout() time.Duration { return sqlite.DefaultTimeout }

func TestStoreThatCannotBeSealedIsClosedAgain(t *testing.T) {
	file := oneFile(filepath.Join(t.TempDir(), "records.db"))

	_, err := newBackend(file, []sealed.Key{{ID: "k1"}, {ID: "k1"}})
	require.ErrorContains(t, err, "there twice")

	b, err := newBackend(file, []sealed.Key{{ID: "k1"}})
	require.NoError(t, err)
	require.NoError(t, b.Destruct())
}
