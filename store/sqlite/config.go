package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// DefaultTimeout of a Config.
const DefaultTimeout = 5 * time.Second

// readConns is the size of the pool that reads. A read takes microseconds, so
// that more would only take turns on the same cores.
const readConns = 4

// Config of an Engine. Only Path is required.
type Config struct {
	// Path of the database file, on a local disk. The file (mode 0600) and its
	// directory (mode 0700) are created if they are not there. SQLite keeps
	// "-wal" and "-shm" beside it while it is open, and a file with the ending
	// ".lock" stays there.
	Path string

	// Timeout bounds each store call, all in all. Default 5 s.
	Timeout time.Duration
}

// Check reports whether the configuration can be used, without touching a file.
func (c Config) Check() error {
	switch {
	case c.Path == "":
		return errors.New("path is empty: write the name of a file on a local disk, such as /var/lib/caddy/idempotency.db")
	case c.Path == ":memory:" || strings.HasPrefix(c.Path, "file:"):
		return fmt.Errorf("path %q is SQLite's own notation: write the name of a file, since records must outlive the process", c.Path)
	case c.Timeout < 0:
		return fmt.Errorf("timeout %s is negative", c.Timeout)
	}
	return nil
}

// Open takes the database for this Engine alone, brings its schema up to date,
// and returns the engine. *InUseError if another has it, *store.SchemaError if a
// newer program has migrated it.
//
// One Engine has the file until it is closed. Whoever configures a process anew
// while it serves hands the Engine on instead of opening a second one.
func Open(ctx context.Context, config Config) (*Engine, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	if config.Timeout == 0 {
		config.Timeout = DefaultTimeout
	}
	path, err := createFile(config.Path)
	if err != nil {
		return nil, err
	}
	lock, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	e := &Engine{timeout: config.Timeout, lock: lock}
	// No two connections change the journal mode at once: the writer comes first.
	writer := openPool(dsn(path, config.Timeout, writing), 1)
	if err := prepareSchema(ctx, writer, config.Timeout); err != nil {
		return nil, errors.Join(err, writer.Close(), lock.Close())
	}
	e.readers = openPool(dsn(path, config.Timeout, reading), readConns)
	if e.reading, err = e.readers.PrepareContext(ctx, selectRecord); err != nil {
		return nil, errors.Join(failed("preparing to read", err), e.readers.Close(), writer.Close(), lock.Close())
	}
	e.writer = newWriter(writer)
	go e.writer.run()
	return e, nil
}

// Close brings what is in the log into the database, which leaves one file that
// can be copied, and gives the lock back.
func (e *Engine) Close() error {
	e.writer.close()
	// Closing the last connection does the checkpoint. The lock goes last: until
	// then nobody else may have the file.
	return errors.Join(e.readers.Close(), e.writer.db.Close(), e.lock.Close())
}

// createFile makes directory and file where they are missing, and returns the
// path without symbolic links, so that one file has one lock.
func createFile(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("creating directory of the database: %w", err)
	}
	// Responses are in it. SQLite gives its "-wal" and "-shm" the same mode.
	// O_EXCL, since a file that is there must not be opened, see lockFile.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case err == nil:
		if err := file.Close(); err != nil {
			return "", err
		}
	case !errors.Is(err, fs.ErrExist):
		return "", fmt.Errorf("creating database: %w", err)
	}
	return filepath.EvalSymlinks(path)
}

// lockFile takes the database for one Engine. The kernel gives the lock back
// when the process is gone, however it went; the file itself stays, because
// whoever deletes a lock file may delete the next owner's.
//
// The lock is on a file of its own. SQLite's locks on the database are POSIX
// locks, which a process loses as soon as it closes any descriptor of that file
// (https://sqlite.org/howtocorrupt.html, section 2.2): to open the database for
// a second flock would break the first Engine of the process. SQLite's own
// locking_mode=EXCLUSIVE would allow one connection alone, without readers.
func lockFile(database string) (*flock.Flock, error) {
	lock := flock.New(database+".lock", flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("locking database: %w", err)
	}
	if !locked {
		return nil, &InUseError{Path: database}
	}
	return lock, nil
}
