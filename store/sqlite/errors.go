package sqlite

import (
	"errors"
	"fmt"

	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// InUseError says that another process, or another Engine of this one, has the
// database.
type InUseError struct {
	Path string // of the database
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("database %s is in use: the embedded store serves one instance. "+
		"Stop the other one, give this one a path of its own, or use PostgreSQL, which serves any number", e.Path)
}

// DurabilityError says that SQLite did not take a setting without which an
// acknowledged transition could be lost. A file system that cannot share memory
// between processes, such as most network file systems, cannot do WAL.
type DurabilityError struct {
	Pragma     string
	Want, Have any
}

func (e *DurabilityError) Error() string {
	return fmt.Sprintf("database would not be durable: %s is %v instead of %v; keep the file on a local disk", e.Pragma, e.Have, e.Want)
}

// failed gives an error its class by its result code, of which the low byte is
// the primary one (https://sqlite.org/rescode.html).
func failed(op string, err error) error {
	failure := store.Unavailable // also contexts that ended, and a closed pool
	var result *modernc.Error
	var durability *DurabilityError
	switch {
	case errors.As(err, &result):
		failure = classify(result.Code())
	case errors.As(err, &durability):
		failure = store.Rejected
	}
	return &store.EngineError{Op: op, Failure: failure, Err: err}
}

func classify(code int) store.Failure {
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return store.Busy // somebody else, such as a shell or a backup, writes to the file
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM,
		sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_ABORT:
		return store.Unavailable // the disk, the memory or the deadline; may be gone later
	case sqlite3.SQLITE_SCHEMA:
		return store.Conflict // the schema was changed between preparing and running
	}
	return store.Rejected
}
