package sqlite

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// open opens an engine, on a file of its own unless config names one, which ends
// with the test.
func open(t testing.TB, config Config) *Engine {
	t.Helper()
	if config.Path == "" {
		config.Path = databasePath(t)
	}
	e, err := Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func databasePath(t testing.TB) string {
	return filepath.Join(t.TempDir(), "data", "idempotency.db")
}

// intrude opens the database behind the engine's back, with the driver as it is
// out of the box: what an operator's shell or a damaged disk would do.
func intrude(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func mustExec(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err)
}

func newDraft(key string) store.Draft {
	d := store.Draft{
		Identity: store.Identity{
			Scope: store.Scope{Tenant: "acme", Actor: "alice", Operation: "create-order"},
			Key:   key,
		},
		Fingerprint: store.Fingerprint{Algorithm: 1, Version: "orders/v1", Sum: sha256.Sum256([]byte(key))},
		Lease:       time.Hour,
	}
	_, _ = rand.Read(d.Token[:]) // never fails
	return d
}

func claim(t testing.TB, e *Engine, draft store.Draft) {
	t.Helper()
	won, held, err := e.Claim(context.Background(), draft)
	require.NoError(t, err)
	require.True(t, won, "record is held: %+v", held)
}

func completion(body string) store.Completion {
	return store.Completion{
		Status:    http.StatusCreated,
		Resource:  "/orders/1",
		Response:  &store.Response{Header: http.Header{"Location": {"/orders/1"}}, Body: []byte(body)},
		ReplayFor: time.Hour,
	}
}

// read returns a record that has to be there.
func read(t testing.TB, e *Engine, id store.Identity) *store.Record {
	t.Helper()
	record, err := e.Read(context.Background(), id)
	require.NoError(t, err)
	return record
}

func requireFailure(t testing.TB, want store.Failure, err error) {
	t.Helper()
	var failed *store.EngineError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, want, failed.Failure, "%v", err)
}
