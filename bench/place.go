package main

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
	"github.com/caddy-idempotency/caddy-idempotency/store/sqlite"
)

const (
	onPostgres = "PostgreSQL"
	onSQLite   = "SQLite"
)

var kinds = []string{onPostgres, onSQLite}

// place is where the records of one gateway are: a database, or a file.
type place struct {
	kind string
	dsn  string // PostgreSQL
	path string // SQLite
}

// newPlace makes one with the engine's own schema and no records.
func (b *bench) newPlace(kind string) (*place, error) {
	b.places++
	p := &place{kind: kind}
	if kind == onSQLite {
		p.path = filepath.Join(b.dir, fmt.Sprintf("records-%d.db", b.places))
	} else {
		server, err := b.postgres()
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("idempotency_bench_%s_%d", strings.ToLower(b.run), b.places)
		if err := execute(b.ctx, server, "CREATE DATABASE "+name); err != nil {
			return nil, err
		}
		b.atEnd(func() { _ = execute(context.WithoutCancel(b.ctx), server, "DROP DATABASE "+name+" WITH (FORCE)") })
		p.dsn = withDatabase(server, name)
	}
	engine, err := p.open(b.ctx)
	if err != nil {
		return nil, err
	}
	return p, engine.Close()
}

func (p *place) open(ctx context.Context) (store.Engine, error) {
	if p.kind == onSQLite {
		return sqlite.Open(ctx, sqlite.Config{Path: p.path})
	}
	return postgres.Open(ctx, postgres.Config{DSN: p.dsn})
}

// store is the Caddyfile's line.
func (p *place) store() string {
	if p.kind == onSQLite {
		return fmt.Sprintf("store sqlite %q", p.path)
	}
	return fmt.Sprintf("store postgres %q", p.dsn)
}

// postgres starts the server when it is asked for first.
func (b *bench) postgres() (dsn string, err error) {
	if b.server == "" {
		dsn, stop, err := pgtest.Start()
		if err != nil {
			return "", err
		}
		b.server = dsn
		b.atEnd(stop)
	}
	return b.server, nil
}

// withDatabase understands both forms of a connection string.
func withDatabase(dsn, name string) string {
	if u, err := url.Parse(dsn); err == nil && strings.HasPrefix(u.Scheme, "postgres") {
		u.Path = "/" + name
		return u.String()
	}
	return dsn + " dbname=" + name
}

func execute(ctx context.Context, dsn string, statements ...string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// ask reads one row.
func ask(ctx context.Context, dsn, sql string, into ...any) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return conn.QueryRow(ctx, sql).Scan(into...)
}
