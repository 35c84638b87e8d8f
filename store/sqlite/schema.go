package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"time"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations returns the steps of the schema in order.
func migrations() []store.Migration {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the folder is embedded
	}
	steps, err := store.LoadMigrations(files)
	if err != nil {
		panic(err) // checked by every test
	}
	return steps
}

// migrationsTable makes the table that says which migrations were applied.
const migrationsTable = `CREATE TABLE IF NOT EXISTS idempotency_migrations (
	version    INTEGER NOT NULL PRIMARY KEY,
	name       TEXT    NOT NULL,
	applied_at INTEGER NOT NULL DEFAULT (` + now + `)
) STRICT`

const (
	migrationApplied = `INSERT INTO idempotency_migrations (version, name) VALUES (?, ?)`
	migrationsExist  = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'idempotency_migrations'`
	latestMigration  = `SELECT coalesce(max(version), 0) FROM idempotency_migrations`
)

// prepareSchema brings the schema up to date. The database is ours alone by now,
// so that no further lock is needed.
func prepareSchema(ctx context.Context, db *sql.DB, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	program := migrations()
	version, err := schemaVersion(ctx, db)
	if err != nil {
		return failed("checking schema", err)
	}
	switch {
	case version == len(program):
		return nil
	case version > len(program):
		return &store.SchemaError{Database: version, Program: len(program)}
	}
	if err := migrate(ctx, db, program[version:]); err != nil {
		return failed("migrating", err)
	}
	return nil
}

// schemaVersion returns 0 where there is no table of migrations.
func schemaVersion(ctx context.Context, db *sql.DB) (version int, err error) {
	var tables int
	if err := db.QueryRowContext(ctx, migrationsExist).Scan(&tables); err != nil || tables == 0 {
		return 0, err
	}
	err = db.QueryRowContext(ctx, latestMigration).Scan(&version)
	return version, err
}

// migrate applies all of the steps or nothing: SQLite's DDL is transactional.
func migrate(ctx context.Context, db *sql.DB, missing []store.Migration) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit

	if _, err := tx.ExecContext(ctx, migrationsTable); err != nil {
		return err
	}
	for _, m := range missing {
		if _, err := tx.ExecContext(ctx, m.SQL); err != nil {
			return fmt.Errorf("migration %04d_%s: %w", m.Version, m.Name, err)
		}
		if _, err := tx.ExecContext(ctx, migrationApplied, m.Version, m.Name); err != nil {
			return err
		}
	}
	return tx.Commit()
}
