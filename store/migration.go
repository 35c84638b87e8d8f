package store

import (
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
)

// Migration is one numbered step of an engine's schema. A step that was
// released never changes: a correction is the next number.
type Migration struct {
	Version int    // 1, 2, 3, … without a gap
	Name    string // what it does, from the name of its file: "records"
	SQL     string
}

// migrationFile is the form of every file name: "0001_records.sql".
var migrationFile = regexp.MustCompile(`^([0-9]{4})_([a-z0-9_]+)\.sql$`)

// LoadMigrations reads the steps from the top of a file system, in order. A
// file that is not a step, a number that is missing and one that comes twice
// are errors: a schema with a hole is worse than no schema.
func LoadMigrations(fsys fs.FS) ([]Migration, error) {
	entries, err := fs.ReadDir(fsys, ".") // sorted by name, so by number
	if err != nil {
		return nil, fmt.Errorf("listing migrations: %w", err)
	}
	var migrations []Migration
	for _, entry := range entries {
		parts := migrationFile.FindStringSubmatch(entry.Name())
		if parts == nil || entry.IsDir() {
			return nil, fmt.Errorf("migration %q is not a file named like 0001_what_it_does.sql", entry.Name())
		}
		version, err := strconv.Atoi(parts[1])
		if err != nil {
			return nil, fmt.Errorf("migration %q: %w", entry.Name(), err)
		}
		if next := len(migrations) + 1; version != next {
			return nil, fmt.Errorf("migration %q stands where number %04d is due", entry.Name(), next)
		}
		sql, err := fs.ReadFile(fsys, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("reading migration: %w", err)
		}
		migrations = append(migrations, Migration{Version: version, Name: parts[2], SQL: string(sql)})
	}
	if len(migrations) == 0 {
		return nil, fmt.Errorf("no migrations")
	}
	return migrations, nil
}

// SchemaError says that a database's schema is not the one that this program
// works with. Each version is the number of the last migration; 0 is an empty
// database.
type SchemaError struct {
	Database int
	Program  int
}

// Newer reports whether the database was migrated by a newer program. It is
// left alone then: what this program does not know of, it could break.
func (e *SchemaError) Newer() bool { return e.Database > e.Program }

func (e *SchemaError) Error() string {
	if e.Newer() {
		return fmt.Sprintf("database schema has version %d, and this program knows no more than %d: run the program that migrated it, or a newer one",
			e.Database, e.Program)
	}
	return fmt.Sprintf("database schema has version %d, and this program needs %d: apply the migrations that are missing, or let the program do it",
		e.Database, e.Program)
}
