package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Defaults of a Config.
const (
	DefaultTimeout     = 5 * time.Second
	DefaultLockTimeout = 2 * time.Second
	DefaultMaxConns    = 10
)

// Pooler says what stands between this process and the server.
type Pooler string

const (
	// NoPooler: connections are this process's own, and statements are prepared
	// once for each. The default.
	NoPooler Pooler = ""

	// TransactionPooler: a pooler such as pgbouncer gives out a server connection
	// for one transaction at a time. Named prepared statements would meet a
	// connection that does not know them, so that none are used.
	TransactionPooler Pooler = "transaction"
)

// Config of an Engine. Only DSN is required.
type Config struct {
	// DSN is a PostgreSQL connection string, as URL or keyword/value pairs
	// (PostgreSQL manual, section 34.1.1). It must lead to the primary.
	DSN string

	// Timeout bounds each store call, all in all. Default 5 s.
	Timeout time.Duration

	// LockTimeout bounds the wait for one lock. Default 2 s, or Timeout if that is
	// shorter.
	LockTimeout time.Duration

	// MaxConns is the size of the connection pool. Default 10.
	MaxConns int32

	// Pooler in front of the server, if any.
	Pooler Pooler

	// SkipMigrations leaves the schema to somebody else. Open then only checks
	// that it is there.
	SkipMigrations bool
}

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = min(DefaultLockTimeout, c.Timeout)
	}
	if c.MaxConns == 0 {
		c.MaxConns = DefaultMaxConns
	}
	return c
}

// Check reports whether the configuration can be used, without a round trip.
func (c Config) Check() error {
	_, err := c.poolConfig()
	return err
}

func (c Config) poolConfig() (*pgxpool.Config, error) {
	c = c.withDefaults()
	if c.DSN == "" {
		return nil, fmt.Errorf("dsn is empty: write one such as postgres://user:password@host:5432/database")
	}
	pool, err := pgxpool.ParseConfig(c.DSN)
	if err != nil {
		return nil, fmt.Errorf("dsn: %w: write one such as postgres://user:password@host:5432/database", err) // pgx leaves the password out
	}
	if c.LockTimeout > c.Timeout {
		return nil, fmt.Errorf("lock_timeout %s is longer than timeout %s, which bounds the whole call", c.LockTimeout, c.Timeout)
	}
	pool.MaxConns = c.MaxConns
	// A standby, or a role that is read-only by default, cannot arbitrate.
	pool.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	if pool.ConnConfig.ConnectTimeout == 0 || pool.ConnConfig.ConnectTimeout > c.Timeout {
		pool.ConnConfig.ConnectTimeout = c.Timeout
	}
	switch c.Pooler {
	case NoPooler:
	case TransactionPooler:
		pool.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		pool.ConnConfig.StatementCacheCapacity = 0
	default:
		return nil, fmt.Errorf("pooler %q is not known: leave it out, or write %q", c.Pooler, TransactionPooler)
	}
	return pool, nil
}

// Open connects, brings the schema up to date unless told not to, and returns
// the engine. An error whose Failure is store.Unavailable may be gone later; any
// other is one of the configuration.
func Open(ctx context.Context, config Config) (*Engine, error) {
	config = config.withDefaults()
	poolConfig, err := config.poolConfig()
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, poolConfig)
	if err != nil {
		return nil, err
	}
	e := &Engine{pool: pool, config: config, exactBelow: exactBelow}
	lanes := min(maxLanes, int(config.MaxConns))
	e.writes = &batches{lanes: lanes, most: maxBatch, patience: config.Timeout / 2, send: e.write}
	e.turns.queues = make(map[turn]*queue)
	e.reads = &batches{lanes: lanes, most: maxBatch, patience: config.Timeout / 2, send: e.readSettled}
	if err := e.prepareSchema(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return e, nil
}

// CallTimeout is the bound of each store call, with its default applied.
func (c Config) CallTimeout() time.Duration { return c.withDefaults().Timeout }

// Digest tells two configurations apart without showing a secret.
func (c Config) Digest() string {
	c = c.withDefaults()
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d %d %q %t", c.DSN, c.Timeout, c.LockTimeout, c.MaxConns, c.Pooler, c.SkipMigrations))
	return hex.EncodeToString(sum[:8])
}
