package store

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func files(sqlByName map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, sql := range sqlByName {
		fsys[name] = &fstest.MapFile{Data: []byte(sql)}
	}
	return fsys
}

func TestMigrationsComeInOrder(t *testing.T) {
	migrations, err := LoadMigrations(files(map[string]string{
		"0002_natural_keys.sql": "CREATE TABLE b ();",
		"0001_records.sql":      "CREATE TABLE a ();",
	}))
	require.NoError(t, err)
	require.Equal(t, []Migration{
		{Version: 1, Name: "records", SQL: "CREATE TABLE a ();"},
		{Version: 2, Name: "natural_keys", SQL: "CREATE TABLE b ();"},
	}, migrations)
}

func TestMigrationsWithAHoleAreRefused(t *testing.T) {
	for name, sqlByName := range map[string]map[string]string{
		"nothing":         {},
		"starts at two":   {"0002_b.sql": ""},
		"starts at zero":  {"0000_a.sql": ""},
		"number missing":  {"0001_a.sql": "", "0003_c.sql": ""},
		"number twice":    {"0001_a.sql": "", "0001_b.sql": ""},
		"no number":       {"a.sql": ""},
		"short number":    {"1_a.sql": ""},
		"no name":         {"0001_.sql": ""},
		"not SQL":         {"0001_a.sql": "", "README.md": ""},
		"capital letters": {"0001_A.sql": ""},
		"folder":          {"0001_a.sql/0001_a.sql": ""},
	} {
		t.Run(name, func(t *testing.T) {
			migrations, err := LoadMigrations(files(sqlByName))
			require.Error(t, err)
			require.Nil(t, migrations)
		})
	}
}

func TestSchemaErrorSaysWhichSideIsNewer(t *testing.T) {
	newer := &SchemaError{Database: 3, Program: 2}
	require.True(t, newer.Newer())
	require.ErrorContains(t, newer, "has version 3, and this program knows no more than 2")

	older := &SchemaError{Database: 0, Program: 2}
	require.False(t, older.Newer())
	require.ErrorContains(t, older, "has version 0, and this program needs 2")
}
