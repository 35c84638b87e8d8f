package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the steps of the schema in order, for whoever applies them
// by hand. Bookkeeping is the statement that each of them has to be followed by
// in the same transaction.
func Migrations() []store.Migration {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the folder is embedded
	}
	migrations, err := store.LoadMigrations(files)
	if err != nil {
		panic(err) // checked by every test
	}
	return migrations
}

// MigrationsTable makes the table that says which migrations were applied.
const MigrationsTable = `CREATE TABLE IF NOT EXISTS idempotency_migrations (
	version    integer     PRIMARY KEY,
	name       text        NOT NULL,
	applied_at timestamptz NOT NULL DEFAULT now()
)`

const (
	lockMigrations  = `LOCK TABLE idempotency_migrations IN SHARE ROW EXCLUSIVE MODE`
	latestMigration = `SELECT coalesce(max(version), 0) FROM idempotency_migrations`
	addMigration    = `INSERT INTO idempotency_migrations (version, name) VALUES ($1, $2)`
)

// Bookkeeping returns the statement that records a migration as applied.
func Bookkeeping(m store.Migration) string {
	return fmt.Sprintf(`INSERT INTO idempotency_migrations (version, name) VALUES (%d, '%s')`, m.Version, m.Name)
}

// prepareSchema brings the schema up to date, or only checks that it is. Where
// it is already, a role that may read and write the tables is enough.
func (e *Engine) prepareSchema(ctx context.Context) error {
	program := len(Migrations())
	database, err := e.schemaVersion(ctx)
	if err == nil && database < program && !e.config.SkipMigrations {
		if err := e.migrate(ctx); err != nil {
			return err
		}
		database, err = e.schemaVersion(ctx)
	}
	if err == nil && database != program {
		err = &store.SchemaError{Database: database, Program: program}
	}
	return err
}

// schemaVersion returns 0 where there is no table of migrations.
func (e *Engine) schemaVersion(ctx context.Context) (version int, err error) {
	err = e.inTx(ctx, "checking schema", lazy, func(b *pgx.Batch) {
		b.Queue(latestMigration).QueryRow(func(row pgx.Row) error { return row.Scan(&version) })
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == undefinedTable {
		return 0, nil
	}
	return version, err
}

// migrationTimeout bounds all migrations together: an index on a large table takes
// its time, and giving up early would begin again for ever.
const migrationTimeout = 30 * time.Minute

// migrate applies what is missing, all of it or nothing, under a lock which
// makes instances that start at once take turns. A lock on a table ends with its
// transaction, also behind a pooler, which an advisory lock of a session does not.
func (e *Engine) migrate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, migrationTimeout)
	defer cancel()
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return e.failed("connecting", err)
	}
	defer conn.Release()

	// Two sessions that create the same table at the same moment: IF NOT EXISTS
	// does not help the later one, which fails on the catalogue's unique index and
	// finds the table the next time.
	_, err = conn.Exec(ctx, MigrationsTable)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == uniqueViolation || pg.Code == duplicateTable || pg.Code == duplicateObject) {
		_, err = conn.Exec(ctx, MigrationsTable)
	}
	if err != nil {
		return e.failed("creating the table of migrations", err)
	}

	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockMigrations); err != nil {
			return err
		}
		var version int
		if err := tx.QueryRow(ctx, latestMigration).Scan(&version); err != nil {
			return err
		}
		migrations := Migrations()
		for _, m := range migrations[min(version, len(migrations)):] {
			// The simple protocol takes several statements in one string.
			if _, err := tx.Conn().PgConn().Exec(ctx, m.SQL).ReadAll(); err != nil {
				return fmt.Errorf("migration %04d_%s: %w", m.Version, m.Name, err)
			}
			if _, err := tx.Exec(ctx, addMigration, m.Version, m.Name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return e.failed("migrating", err)
	}
	return nil
}
