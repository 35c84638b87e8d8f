package caddymodule

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
	"github.com/caddy-idempotency/caddy-idempotency/store/sqlite"
)

// PostgresStore keeps the records in PostgreSQL, for any number of instances.
type PostgresStore struct {
	// DSN is the connection string of the primary, as a URL or as keyword/value
	// pairs. A secret comes by a placeholder, such as `{env.DATABASE_URL}` or
	// `{file./run/secrets/dsn}`. Required.
	DSN string `json:"dsn,omitempty"`

	// Timeout bounds each store call. From 1ms to 10m, such as `"2s"`. Default: 5s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// LockTimeout bounds the wait for one lock. From 1ms to 10m, such as `"500ms"`,
	// and not longer than timeout. Default: 2s, or timeout if that is
	// shorter.
	LockTimeout caddy.Duration `json:"lock_timeout,omitempty"`

	// MaxConns is the size of the connection pool. No request holds a connection
	// while the upstream works. From 1 to 10000. Default: 10.
	MaxConns int32 `json:"max_conns,omitempty"`

	// Pooler is `transaction` if a pooler in transaction mode, such as pgbouncer,
	// stands before the server. Default: none.
	Pooler postgres.Pooler `json:"pooler,omitempty"`

	// MigrateOff leaves the schema to somebody else, who applies what
	// `caddy idempotency migrations` prints. Default: false.
	MigrateOff bool `json:"migrate_off,omitempty"`

	config postgres.Config // with the secrets resolved
}

// CaddyModule returns the Caddy module information.
func (PostgresStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "idempotency.stores.postgres",
		New: func() caddy.Module { return new(PostgresStore) },
	}
}

// Provision resolves the placeholders and checks the connection string.
func (s *PostgresStore) Provision(caddy.Context) error {
	if err := s.check(); err != nil {
		return err
	}
	dsn, err := caddy.NewReplacer().ReplaceOrErr(s.DSN, true, true)
	if err != nil {
		return fmt.Errorf("dsn: %w: set it before Caddy starts; in a password, write a brace as %%7B or %%7D", err)
	}
	s.config = postgres.Config{
		DSN: dsn, Timeout: time.Duration(s.Timeout), LockTimeout: time.Duration(s.LockTimeout),
		MaxConns: s.MaxConns, Pooler: s.Pooler, SkipMigrations: s.MigrateOff,
	}
	return s.config.Check()
}

// Open implements StoreOpener.
func (s *PostgresStore) Open(ctx context.Context) (store.Engine, error) {
	return postgres.Open(ctx, s.config)
}

// Place implements StoreOpener. Another password or timeout is another place, so
// that a new configuration gets connections of its own.
func (s *PostgresStore) Place() string {
	return fmt.Sprintf("postgres %s", s.config.Digest())
}

// CallTimeout implements StoreOpener.
func (s *PostgresStore) CallTimeout() time.Duration {
	return s.config.CallTimeout()
}

// SQLiteStore keeps the records in one file, for one instance.
type SQLiteStore struct {
	// Path of the file on a local disk, such as `/var/lib/caddy/orders.db`.
	// Default: `idempotency/records.db` in Caddy's data directory.
	Path string `json:"path,omitempty"`

	path string
	log  *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (SQLiteStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "idempotency.stores.sqlite",
		New: func() caddy.Module { return new(SQLiteStore) },
	}
}

// Provision resolves the path.
func (s *SQLiteStore) Provision(ctx caddy.Context) error {
	s.log = ctx.Logger()
	path, err := caddy.NewReplacer().ReplaceOrErr(s.Path, true, true)
	if err != nil {
		return fmt.Errorf("path: %w: set it before Caddy starts", err)
	}
	if s.Path == "" {
		path = filepath.Join(caddy.AppDataDir(), "idempotency", "records.db")
	}
	if err := checkSQLitePath(path); err != nil {
		return err
	}
	s.path, err = filepath.Abs(path)
	return err
}

// Open implements StoreOpener.
func (s *SQLiteStore) Open(ctx context.Context) (store.Engine, error) {
	s.log.Warn("the embedded store serves one instance only; use PostgreSQL for more", zap.String("path", s.path))
	return sqlite.Open(ctx, sqlite.Config{Path: s.path})
}

// Place implements StoreOpener.
func (s *SQLiteStore) Place() string { return "sqlite " + s.path }

// CallTimeout implements StoreOpener.
func (s *SQLiteStore) CallTimeout() time.Duration { return sqlite.DefaultTimeout }

// Interface guards
var (
	_ StoreOpener       = (*PostgresStore)(nil)
	_ StoreOpener       = (*SQLiteStore)(nil)
	_ caddy.Provisioner = (*PostgresStore)(nil)
	_ caddy.Provisioner = (*SQLiteStore)(nil)
)
