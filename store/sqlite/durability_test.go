package sqlite

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// pragma asks one connection, not the pool.
func pragma(t *testing.T, conn *sql.Conn, name string) (value string) {
	t.Helper()
	require.NoError(t, conn.QueryRowContext(t.Context(), "PRAGMA "+name).Scan(&value))
	return value
}

func TestEveryConnectionIsDurable(t *testing.T) {
	e := open(t, Config{})
	pools := map[string]struct {
		db    *sql.DB
		conns int
	}{
		"writer":  {e.writer.db, 1},
		"readers": {e.readers, readConns},
	}
	for name, pool := range pools {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, pool.conns, pool.db.Stats().MaxOpenConnections)
			for range pool.conns { // all at a time, so that each is another one
				conn, err := pool.db.Conn(t.Context())
				require.NoError(t, err)
				defer conn.Close()
				require.Equal(t, "wal", pragma(t, conn, "journal_mode"))
				require.Equal(t, "2", pragma(t, conn, "synchronous"), "2 is FULL")
				require.Equal(t, "1", pragma(t, conn, "fullfsync"))
				require.Equal(t, "1", pragma(t, conn, "checkpoint_fullfsync"))
			}
		})
	}
}

func TestReadersCannotWrite(t *testing.T) {
	e := open(t, Config{})
	_, err := e.readers.ExecContext(t.Context(), "DELETE FROM idempotency_records")
	requireFailure(t, store.Rejected, failed("deleting", err))
}

func TestConnectionThatIsNotDurableIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		query  string
		pragma string
	}{
		"rollback journal": {"_journal_mode=delete&_synchronous=full", "journal_mode"},
		"synchronous off":  {"_journal_mode=wal&_synchronous=off", "synchronous"},
		"normal":           {"_journal_mode=wal&_synchronous=normal", "synchronous"},
		"driver's default": {"", "journal_mode"},
	} {
		t.Run(name, func(t *testing.T) {
			db := openPool("file:"+filepath.Join(t.TempDir(), "a.db")+"?"+c.query, 1)
			defer db.Close()

			err := db.PingContext(t.Context())
			var refused *DurabilityError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, c.pragma, refused.Pragma)
			requireFailure(t, store.Rejected, failed("opening", err))
		})
	}
}

func TestFilesAreForTheirOwnerAlone(t *testing.T) {
	path := databasePath(t)
	e := open(t, Config{Path: path})
	claim(t, e, newDraft("K1"))

	mode := func(path string) os.FileMode {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Mode().Perm()
	}
	require.EqualValues(t, 0o700, mode(filepath.Dir(path)))
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		require.EqualValues(t, 0o600, mode(path+suffix), suffix)
	}
}

func TestClosedDatabaseIsOneFile(t *testing.T) {
	path := databasePath(t)
	e, err := Open(t.Context(), Config{Path: path})
	require.NoError(t, err)
	draft := newDraft("K1")
	claim(t, e, draft)
	require.NoError(t, e.Close())

	require.NoFileExists(t, path+"-wal")
	require.NoFileExists(t, path+"-shm")
	copied := filepath.Join(t.TempDir(), "copy.db")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(copied, content, 0o600))
	require.Equal(t, store.Executing, read(t, open(t, Config{Path: copied}), draft.Identity).State)
}

func TestPathIsTakenAsItIs(t *testing.T) {
	for _, name := range []string{"with space.db", "what?.db", "50%25.db", "a#b.db", "a&_synchronous=off.db", "é.db"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			e := open(t, Config{Path: path})
			claim(t, e, newDraft("K1"))
			require.FileExists(t, path)
			require.FileExists(t, path+"-wal")
		})
	}
}

func TestUselessConfigurationIsRefused(t *testing.T) {
	for name, config := range map[string]Config{
		"no path":          {},
		"memory":           {Path: ":memory:"},
		"URI":              {Path: "file:a.db?mode=memory"},
		"negative timeout": {Path: "a.db", Timeout: -1},
	} {
		t.Run(name, func(t *testing.T) {
			require.Error(t, config.Check())
			_, err := Open(t.Context(), config)
			require.Error(t, err)
		})
	}
}
