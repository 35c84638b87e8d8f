package caddymodule

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
)

// What is printed for a DBA is the schema that the program works with.
func TestPrintedMigrationsMakeTheSchema(t *testing.T) {
	db := pgtest.New(t)
	var sql bytes.Buffer
	require.NoError(t, printMigrations(&sql, 0))

	db.Exec(t, sql.String())

	engine, err := postgres.Open(t.Context(), postgres.Config{DSN: db.DSN, SkipMigrations: true})
	require.NoError(t, err)
	require.NoError(t, engine.Close())
}

func TestPrintedMigrationsGoOnFromAVersion(t *testing.T) {
	db := pgtest.New(t)
	var first, rest bytes.Buffer
	require.NoError(t, printMigrations(&rest, 1))
	require.NoError(t, printMigrations(&first, 0))
	before, _, found := strings.Cut(first.String(), "-- 0002")
	require.True(t, found)

	db.Exec(t, before)
	db.Exec(t, rest.String())

	engine, err := postgres.Open(t.Context(), postgres.Config{DSN: db.DSN, SkipMigrations: true})
	require.NoError(t, err)
	require.NoError(t, engine.Close())
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
