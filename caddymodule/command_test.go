package caddymodule

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
)

// migrationsOf is what the command prints.
func migrationsOf(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var sql bytes.Buffer
	cmd := migrationsCommand()
	cmd.SetOut(&sql)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return sql.String(), err
}

// What is printed for a DBA is the schema that the program works with.
func TestPrintedMigrationsMakeTheSchema(t *testing.T) {
	for _, args := range [][]string{{}, {"--partitions", "2"}, {"--partitions", "256"}} {
		db := pgtest.New(t)
		sql, err := migrationsOf(t, args...)
		require.NoError(t, err)

		db.Exec(t, sql)

		engine, err := postgres.Open(t.Context(), postgres.Config{DSN: db.DSN, SkipMigrations: true})
		require.NoError(t, err)
		require.NoError(t, engine.Close())
	}
}

func TestPrintedMigrationsGoOnFromAVersion(t *testing.T) {
	db := pgtest.New(t)
	all, err := migrationsOf(t)
	require.NoError(t, err)
	rest, err := migrationsOf(t, "--from", "1")
	require.NoError(t, err)
	before, _, found := strings.Cut(all, "-- 0002")
	require.True(t, found)

	db.Exec(t, before)
	db.Exec(t, rest)

	engine, err := postgres.Open(t.Context(), postgres.Config{DSN: db.DSN, SkipMigrations: true})
	require.NoError(t, err)
	require.NoError(t, engine.Close())
}

func TestPartitionsThatCannotBeMadeAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"--partitions 1":          "from 2 to 256",
		"--partitions 257":        "from 2 to 256",
		"--partitions 4 --from 1": "new database",
	} {
		sql, err := migrationsOf(t, strings.Fields(args)...)
		require.ErrorContains(t, err, want)
		require.NotContains(t, sql, "CREATE TABLE")
	}
}

// The help and the page for operators grant the same.
func TestHelpOfMigrationsGrantsWhatThePageDoes(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	tables := func(text string) (names []string) {
		for _, grant := range regexp.MustCompile(`GRANT .* TO `).FindAllString(text, -1) {
			names = append(names, regexp.MustCompile(`idempotency_\w+`).FindAllString(grant, -1)...)
		}
		slices.Sort(names)
		return names
	}
	require.NotEmpty(t, tables(string(page)))
	require.Equal(t, tables(string(page)), tables(migrationsCommand().Long))
}

// files writes each text into a file, and returns their names.
func files(t *testing.T, texts ...string) (names []string) {
	t.Helper()
	dir := t.TempDir()
	for i, text := range texts {
		names = append(names, filepath.Join(dir, string(rune('a'+i))))
		require.NoError(t, os.WriteFile(names[i], []byte(text), 0o600))
	}
	return names
}

const twoRoutes = `
http://localhost {
	route /orders {
		idempotency {
			actor     shared
			operation create-order
			fingerprint orders/v1 {
				exclude trace_id
				default currency "CNY"
				money   amount currency
			}
		}
	}
	route /refunds {
		idempotency {
			actor     shared
			operation refund
		}
	}
}
`

func TestRulesAreTriedFromTheCommandLine(t *testing.T) {
	f := files(t, twoRoutes, `{"amount":"12.50","trace_id":1}`, `{"currency":"CNY","amount":"12.5","trace_id":2}`, `{"amount":"13","trace_id":1}`, `{"amount":"x"}`)
	s := sample{config: f[0], adapter: "caddyfile", route: "create-order", method: "POST", target: "/orders", mimeType: "application/json"}
	try := func(bodies ...string) (string, error) {
		var out bytes.Buffer
		err := s.print(&out, bodies)
		return out.String(), err
	}

	one, err := try(f[1])
	require.NoError(t, err)
	require.Contains(t, one, `"amount":"1250","currency":"CNY"`)
	require.Contains(t, one, `version "orders/v1"`)
	require.NotContains(t, one, "trace_id")

	same, err := try(f[1], f[2])
	require.NoError(t, err)
	require.Contains(t, same, "they are the same request")

	_, err = try(f[1], f[3])
	require.EqualError(t, err, "they are two requests: amount")

	_, err = try(f[4])
	require.ErrorContains(t, err, "amount")

	s.route = ""
	_, err = try(f[1])
	require.ErrorContains(t, err, `choose one by --route, of ["create-order" "refund"]`)
	s.route = "nowhere"
	_, err = try(f[1])
	require.ErrorContains(t, err, `there is no route with operation "nowhere"`)
}
