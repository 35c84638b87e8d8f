package sqlite

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

func TestResultCodeGivesTheFailure(t *testing.T) {
	for code, want := range map[int]store.Failure{
		sqlite3.SQLITE_BUSY:               store.Busy,
		sqlite3.SQLITE_BUSY_RECOVERY:      store.Busy,
		sqlite3.SQLITE_LOCKED:             store.Busy,
		sqlite3.SQLITE_FULL:               store.Unavailable,
		sqlite3.SQLITE_IOERR:              store.Unavailable,
		sqlite3.SQLITE_IOERR_FSYNC:        store.Unavailable,
		sqlite3.SQLITE_IOERR_SHORT_READ:   store.Unavailable,
		sqlite3.SQLITE_CANTOPEN:           store.Unavailable,
		sqlite3.SQLITE_NOMEM:              store.Unavailable,
		sqlite3.SQLITE_INTERRUPT:          store.Unavailable,
		sqlite3.SQLITE_SCHEMA:             store.Conflict,
		sqlite3.SQLITE_ERROR:              store.Rejected,
		sqlite3.SQLITE_READONLY:           store.Rejected,
		sqlite3.SQLITE_CORRUPT:            store.Rejected,
		sqlite3.SQLITE_NOTADB:             store.Rejected,
		sqlite3.SQLITE_TOOBIG:             store.Rejected,
		sqlite3.SQLITE_CONSTRAINT_NOTNULL: store.Rejected,
	} {
		require.Equal(t, want, classify(code), code)
	}
	requireFailure(t, store.Unavailable, failed("reading", context.DeadlineExceeded))
	requireFailure(t, store.Unavailable, failed("reading", errors.New("anything else")))
}

func TestFileThatSomebodyElseWritesToIsBusy(t *testing.T) {
	path := databasePath(t)
	e := open(t, Config{Path: path, Timeout: time.Second})
	draft := newDraft("K1")
	claim(t, e, draft)
	done := newDraft("K0")
	claim(t, e, done)
	require.NoError(t, e.Complete(t.Context(), done.Identity, done.Token, completion("zero")))

	conn, err := intrude(t, path).Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)

	_, _, err = e.Claim(t.Context(), newDraft("K2"))
	requireFailure(t, store.Busy, err)
	require.False(t, store.Retryable(err), "it has waited long enough")
	requireFailure(t, store.Busy, e.Complete(t.Context(), draft.Identity, draft.Token, completion("one")))
	require.Equal(t, store.Executing, read(t, e, draft.Identity).State, "who reads does not wait")
	again := newDraft("K0")
	won, held, err := e.Claim(t.Context(), again)
	require.NoError(t, err)
	require.False(t, won)
	require.Equal(t, done.Token, held.Token, "nor does a replay")

	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	claim(t, e, newDraft("K2"))
}

func TestMissingTableIsRejected(t *testing.T) {
	path := databasePath(t)
	e := open(t, Config{Path: path})
	draft := newDraft("K1")
	claim(t, e, draft)
	mustExec(t, intrude(t, path), "DROP TABLE idempotency_records")

	_, _, err := e.Claim(t.Context(), newDraft("K2"))
	requireFailure(t, store.Rejected, err)
	_, err = e.Read(t.Context(), draft.Identity)
	requireFailure(t, store.Rejected, err)
	_, err = e.Expire(t.Context(), 10) // prepared for the first time
	requireFailure(t, store.Rejected, err)
}

func TestFullDiskIsUnavailableAndLosesNothing(t *testing.T) {
	e := open(t, Config{})
	draft := newDraft("K1")
	claim(t, e, draft)
	// The disk is full: the database gets no larger than it is, which is the least
	// that SQLite takes.
	_, err := e.writer.db.ExecContext(t.Context(), "PRAGMA max_page_count = 1")
	require.NoError(t, err)

	large := completion(strings.Repeat("x", 1<<20))
	err = e.Complete(t.Context(), draft.Identity, draft.Token, large)
	requireFailure(t, store.Unavailable, err)
	require.True(t, store.Retryable(err))
	require.Equal(t, store.Executing, read(t, e, draft.Identity).State)

	_, err = e.writer.db.ExecContext(t.Context(), "PRAGMA max_page_count = 1000000")
	require.NoError(t, err)
	require.NoError(t, e.Complete(t.Context(), draft.Identity, draft.Token, large))
	require.Len(t, read(t, e, draft.Identity).Response.Body, 1<<20)
}

func TestUnreadableRecordIsAnErrorAndStaysClosed(t *testing.T) {
	for name, damage := range map[string]string{
		"state of tomorrow":   "state = 'verifying'",
		"empty state":         "state = ''",
		"state in capitals":   "state = 'Completed'",
		"short fingerprint":   "fingerprint = x'00'",
		"short claim token":   "claim_token = x''",
		"half of a response":  "response_body = NULL",
		"other half":          "response_header = NULL",
		"broken header":       "response_header = x'00'",
		"algorithm too large": "fingerprint_algorithm = 70000",
		"no replay window":    "replay_until = NULL",
		"no status":           "status = NULL",
		"status that is none": "status = 0",
	} {
		t.Run(name, func(t *testing.T) {
			path := databasePath(t)
			e := open(t, Config{Path: path})
			draft := newDraft("K1")
			claim(t, e, draft)
			require.NoError(t, e.Complete(t.Context(), draft.Identity, draft.Token, completion("one")))
			mustExec(t, intrude(t, path), "UPDATE idempotency_records SET "+damage)

			var corrupt *store.CorruptError
			_, err := e.Read(t.Context(), draft.Identity)
			require.ErrorAs(t, err, &corrupt)
			won, held, err := e.Claim(t.Context(), newDraft("K1"))
			require.ErrorAs(t, err, &corrupt)
			require.False(t, won)
			require.Nil(t, held)
		})
	}
}

func TestDamagedFileIsRejected(t *testing.T) {
	path := databasePath(t)
	e, err := Open(t.Context(), Config{Path: path})
	require.NoError(t, err)
	claim(t, e, newDraft("K1"))
	require.NoError(t, e.Close())

	content, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := 4096; i < len(content); i++ { // every page but the first, which says what the others are
		content[i] = 0xff
	}
	require.NoError(t, os.WriteFile(path, content, 0o600))

	_, err = Open(t.Context(), Config{Path: path})
	requireFailure(t, store.Rejected, err)
}

// A record that was seen completed may be gone.
func TestHintThatIsWrongCostsNoClaim(t *testing.T) {
	path := databasePath(t)
	e := open(t, Config{Path: path})
	draft := newDraft("K1")
	claim(t, e, draft)
	require.NoError(t, e.Complete(t.Context(), draft.Identity, draft.Token, completion("one")))
	mustExec(t, intrude(t, path), `DELETE FROM idempotency_records`)

	claim(t, e, newDraft("K1"))
}
