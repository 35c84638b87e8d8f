package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	modernc "modernc.org/sqlite"
)

// role of a connection.
type role int

const (
	writing role = iota
	reading
)

// dsn is what a connection is opened with. Everything in it but the path is
// constant or a number: the driver runs a _pragma as SQL.
func dsn(path string, timeout time.Duration, as role) string {
	query := url.Values{
		"_pragma": {
			"journal_mode(wal)",
			"synchronous(full)",
			// On macOS fsync leaves the data in the disk's own cache.
			"fullfsync(on)", "checkpoint_fullfsync(on)",
			// A log that has grown in a burst is cut to this size again.
			"journal_size_limit(67108864)",
		},
		// Half of the call's time: a lock that a shell or a backup holds is then
		// reported as such, before the call's own deadline.
		"_busy_timeout": {fmt.Sprint(timeout.Milliseconds() / 2)},
		"_defensive":    {"true"},  // no statement can damage the file
		"_dqs":          {"false"}, // "a mistyped column" is an error, not a string
		"_error_rc":     {"true"},  // no text of another error
	}
	switch as {
	case writing:
		query.Set("_txlock", "immediate")
	case reading:
		query.Set("_query_only", "true")
	}
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/…, where a URI wants /C:/…
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String()
}

// openPool opens connections on demand, at most n, and keeps them.
func openPool(dsn string, n int) *sql.DB {
	db := sql.OpenDB(connector(dsn))
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db
}

// ourDriver is one of our own, so that its hook sees only our connections.
var ourDriver = func() *modernc.Driver {
	d := &modernc.Driver{}
	d.RegisterConnectionHook(func(conn modernc.ExecQuerierContext, _ string) error {
		return checkDurability(conn)
	})
	return d
}()

// connector opens connections by our driver; sql.Register would want a name that
// is unique in the process.
type connector string

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return ourDriver.Open(string(c))
}

func (c connector) Driver() driver.Driver { return ourDriver }

// checkDurability asks a new connection what is in force. SQLite does not fail
// on a setting that it cannot take: it answers with what it has instead.
func checkDurability(conn driver.QueryerContext) error {
	for _, setting := range []struct {
		pragma string
		want   driver.Value
	}{
		{"journal_mode", "wal"},
		{"synchronous", int64(2)}, // FULL
	} {
		have, err := askPragma(conn, setting.pragma)
		if err != nil {
			return err
		}
		if have != setting.want {
			return &DurabilityError{Pragma: setting.pragma, Want: setting.want, Have: have}
		}
	}
	return nil
}

func askPragma(conn driver.QueryerContext, name string) (driver.Value, error) {
	rows, err := conn.QueryContext(context.Background(), "PRAGMA "+name, nil)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	value := make([]driver.Value, 1)
	err = rows.Next(value)
	return value[0], err
}
