package sqlite

import (
	"database/sql"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

func TestSchemaIsMadeOnceAndRecorded(t *testing.T) {
	path := databasePath(t)
	for range 2 {
		e, err := Open(t.Context(), Config{Path: path})
		require.NoError(t, err)
		require.NoError(t, e.Close())
	}
	db := intrude(t, path)
	rows, err := db.QueryContext(t.Context(), "SELECT version, name, applied_at FROM idempotency_migrations ORDER BY version")
	require.NoError(t, err)
	defer rows.Close()
	for _, m := range migrations() {
		var version int
		var name string
		var appliedAt int64
		require.True(t, rows.Next())
		require.NoError(t, rows.Scan(&version, &name, &appliedAt))
		require.Equal(t, m.Version, version)
		require.Equal(t, m.Name, name)
		require.Positive(t, appliedAt)
	}
	require.False(t, rows.Next())
}

func TestDatabaseOfANewerProgramIsLeftAlone(t *testing.T) {
	path := databasePath(t)
	e, err := Open(t.Context(), Config{Path: path})
	require.NoError(t, err)
	require.NoError(t, e.Close())
	newer := len(migrations()) + 1
	db := intrude(t, path)
	mustExec(t, db, "INSERT INTO idempotency_migrations (version, name) VALUES (?, 'of_tomorrow')", newer)

	_, err = Open(t.Context(), Config{Path: path})
	var schema *store.SchemaError
	require.ErrorAs(t, err, &schema)
	require.True(t, schema.Newer())
	require.Equal(t, newer, schema.Database)

	// The refusal has given the lock back.
	mustExec(t, db, "DELETE FROM idempotency_migrations WHERE version = ?", newer)
	claim(t, open(t, Config{Path: path}), newDraft("K1"))
}

func TestMigrationThatFailsLeavesNothing(t *testing.T) {
	db := openPool(dsn(t.TempDir()+"/a.db", DefaultTimeout, writing), 1)
	defer db.Close()

	err := migrate(t.Context(), db, []store.Migration{
		{Version: 1, Name: "good", SQL: "CREATE TABLE good (id INTEGER) STRICT; CREATE TABLE other (id INTEGER) STRICT;"},
		{Version: 2, Name: "bad", SQL: "CREATE TABLE half (id INTEGER) STRICT; CREATE TABLE good (id INTEGER) STRICT;"},
	})
	requireFailure(t, store.Rejected, failed("migrating", err))
	require.ErrorContains(t, err, "0002_bad")
	require.Zero(t, tables(t, db))
}

func tables(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_schema").Scan(&n))
	return n
}

func TestFileThatIsNotADatabaseIsLeftAlone(t *testing.T) {
	path := t.TempDir() + "/notes.txt"
	content := []byte("Not a database, and long enough to be taken for the header of one: 0123456789 0123456789 0123456789.")
	require.NoError(t, os.WriteFile(path, content, 0o644))

	_, err := Open(t.Context(), Config{Path: path})
	requireFailure(t, store.Rejected, err)

	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, content, after)
}

func TestDirectoryThatCannotBeMadeIsAnError(t *testing.T) {
	file := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Open(t.Context(), Config{Path: file + "/idempotency.db"})
	require.ErrorContains(t, err, "creating directory of the database")
}
