package caddymodule_test

import (
	"os"
	osuser "os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnCallFindsAndResolvesByCommand(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		g.post("K1", order(100), fault("vanish"))
		made := g.upstream.Orders()[0].ID
		body := filepath.Join(g.dir, "order.json")
		require.NoError(t, os.WriteFile(body, []byte(`{"id":"`+made+`"}`), 0o600))

		ls := g.command("ls", "--state", "unknown")
		require.Equal(t, 0, ls.code)
		require.Regexp(t, `(?m)^AGE +STATE +STATUS +TENANT +ACTOR +OPERATION +KEY`, ls.out)
		require.Regexp(t, `(?m)^\d+s +unknown +- +default +shared +create-order +K1 `, ls.out)
		require.Regexp(t, `(?m)^unknown +1$`, g.command("stats").out)

		done := g.commandAbout("resolve", "K1", "--as", "completed", "--status", "201", "--location", "/orders/"+made,
			"--body", "@"+body, "--reason", "in the books")
		require.Equal(t, 0, done.code, done.err)
		require.Contains(t, done.out, "a retry is answered with what you wrote")

		again := g.post("K1", order(100))
		require.Equal(t, 201, again.status)
		require.Equal(t, "/orders/"+made, again.header.Get("Location"))
		require.Equal(t, made, again.id())
		g.settled(1)

		shown := g.commandAbout("show", "K1", "--response")
		require.Equal(t, 0, shown.code)
		require.Regexp(t, `(?m)^state +completed`, shown.out)
		require.Contains(t, shown.out, "Location: /orders/"+made)
		me, err := osuser.Current()
		require.NoError(t, err)
		require.Equal(t, []decided{{me.Username, "unknown", "completed", 201, "in the books"}}, g.show("K1", nil).ok().audit())
	})
}

func TestOnCallReleasesByCommand(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		for _, c := range []struct{ key, how string }{{"K1", "release"}, {"K2", "resolve --as not-executed"}} {
			g := newGateway(t, s)
			g.post(c.key, order(100), fault("reset"))
			how := strings.Fields(c.how)

			done := g.commandAbout(how[0], c.key, append(how[1:], "--reason", "no such order", "--by", "olga")...)
			require.Equal(t, 0, done.code, done.err)
			require.Contains(t, done.out, "a retry is executed")

			g.post(c.key, order(100)).first(201)
			require.Equal(t, 1, g.upstream.made(c.key))
			g.process().stop(t)
			g.process().awaitExit(t)
		}
	})
}

func TestExitCodesSayWhatHappened(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		g.post("done", order(100))
		s.hasUnknown(t, "K1", 60)
		because := []string{"--reason", "seen"}
		completed := append([]string{"--as", "completed", "--status", "201"}, because...)

		for _, c := range []struct {
			means   string
			code    int
			printed printed
			says    string
		}{
			{"wrong flag", 1, g.command("ls", "--colour"), "unknown flag"},
			{"wrong state", 1, g.command("ls", "--state", "lost"), "write one of executing"},
			{"wrong limit", 1, g.command("ls", "--limit", "0"), "write 1 or more"},
			{"no reason", 1, g.commandAbout("release", "K1"), `required flag(s) "reason" not set`},
			{"empty reason", 1, g.commandAbout("release", "K1", "--reason", ""), "reason is missing"},
			{"no key", 1, g.command("show", "--actor", "shared", "--operation", "create-order"), `"key" not set`},
			{"wrong decision", 1, g.commandAbout("resolve", "K1", "--as", "done", "--reason", "x"), "write completed or not-executed"},
			{"wrong duration", 1, g.commandAbout("resolve", "K1", append(completed, "--keep-for", "long")...), "30d"},
			{"no such file", 1, g.commandAbout("resolve", "K1", append(completed, "--body", "@missing")...), "missing"},
			{"nobody there", 1, g.commandAt("127.0.0.1:1", "ls"), "is Caddy running there?"},
			{"no address", 1, g.commandAt("127.0.0.1:1-2", "ls"), "localhost:2019"},
			{"no record", 3, g.commandAbout("show", "K9"), "no record"},
			{"no record to release", 3, g.commandAbout("release", "K9", because...), "no record"},
			{"not unknown", 4, g.commandAbout("release", "done", because...), "nothing was changed"},
			{"another attempt", 4, g.commandAbout("release", "K1", append(because, "--attempt", "0123")...), "another attempt"},
			{"resolved", 0, g.commandAbout("resolve", "K1", completed...), ""},
			{"resolved twice", 4, g.commandAbout("resolve", "K1", completed...), "nothing was changed"},
			{"shown", 0, g.commandAbout("show", "K1"), ""},
			{"nothing listed", 0, g.command("ls"), ""},
		} {
			require.Equal(t, c.code, c.printed.code, "%s: %s%s", c.means, c.printed.out, c.printed.err)
			require.Contains(t, c.printed.err, c.says, c.means)
		}
	})
}

func TestCommandsPrintJSONForMachines(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		s.hasUnknown(t, "K1", 120)
		s.hasUnknown(t, "K2", 60)

		require.Equal(t, []string{"K1", "K2"}, g.command("ls", "--json").keys())
		first := g.command("ls", "--json", "--limit", "1")
		require.Equal(t, []string{"K1"}, first.keys())
		require.Equal(t, []string{"K2"}, g.command("ls", "--json", "--after", first.Next).keys())
		require.Equal(t, 2, g.command("stats", "--json").Stats["unknown"])
		require.Equal(t, "K1", g.commandAbout("show", "K1", "--json").Record.Key)
		require.Equal(t, "released", g.commandAbout("release", "K1", "--reason", "x", "--json").Done)
		again := g.commandAbout("release", "K1", "--reason", "x", "--json")
		require.Equal(t, 3, again.code)
		require.Equal(t, "no-such-record", again.Type)
		require.Len(t, again.Audit, 1)
		require.Equal(t, "bad-request", g.command("ls", "--state", "lost", "--json").Type)
	})
}

func TestCommandListsPastOnePage(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	g := newGateway(t, s)
	s.hasUnknown(t, "K", 60)
	s.exec(t, `INSERT INTO idempotency_records (tenant, actor, operation, key, state, claim_token, fingerprint_algorithm,
			fingerprint_version, fingerprint, claimed_at, lease_until, settled_at, unknown_since, reason)
		SELECT tenant, actor, operation, key || value, state, claim_token, fingerprint_algorithm,
			fingerprint_version, fingerprint, claimed_at, lease_until, settled_at, unknown_since, reason
		FROM idempotency_records, (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 1500) SELECT value FROM n)`)

	require.Len(t, g.command("ls", "--json").Records, 50)
	require.Len(t, g.command("ls", "--json", "--limit", "1200").Records, 1200)
	all := g.command("ls", "--json", "--limit", "5000")
	require.Len(t, all.Records, 1501)
	require.Empty(t, all.Next)
	require.Contains(t, g.command("ls").out, "Raise --limit")
}

func TestCommandFindsTheEndpointOfAConfigurationAndOfASocket(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	g := prepare(t, s, config{})
	g.admin = "unix/" + filepath.Join(g.dir, "admin.sock")
	g.start()
	s.hasUnknown(t, "K1", 60)

	require.Equal(t, []string{"K1"}, g.command("ls", "--json").keys())
	byConfig := g.commandAt("", "ls", "--json", "--config", filepath.Join(g.dir, "Caddyfile"), "--adapter", "caddyfile")
	require.Equal(t, []string{"K1"}, byConfig.keys(), byConfig.err)
}

func TestTableShowsNothingThatMovesTheCursor(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	g := newGateway(t, s)
	s.hasUnknown(t, "K1", 60)
	s.exec(t, `UPDATE idempotency_records SET reason = 'a' || char(27) || '[2J'`)

	ls := g.command("ls")

	require.NotContains(t, ls.out, "\x1b")
	require.Contains(t, ls.out, `"a\x1b[2J"`)
}
