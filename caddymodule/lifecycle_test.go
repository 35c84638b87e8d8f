package caddymodule_test

import (
	"encoding/base64"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/stretchr/testify/require"
)

func TestSlowRequestOutlivesAReload(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		first := g.later("K1", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		g.config.options = "wait off"
		g.reload()
		require.Equal(t, problem(409, "in-flight"), g.post("K1", order(100)).problem(), "by the new configuration")
		g.upstream.Release(0)

		first().first(201)
		g.post("K1", order(100)).replays(first())
		g.settled(1)
	})
}

// Those who wait in the new configuration are told by those who execute in the old.
func TestRetryOfTheNewConfigurationWaitsForTheOldOne(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "wait 1m")

		first := g.later("K1", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		g.reload()
		waiting := g.later("K1", order(100))
		g.awaitClaims(2)
		g.upstream.Release(0)

		first().first(201)
		waiting().replays(first())
		g.settled(1)
	})
}

func TestReloadLeavesNoConnectionOfTheOldPoolBehind(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := postgresStore(t, db, nil)
	named := func(name string) int {
		return pgtest.Get[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`, name)
	}
	g := prepare(t, s, config{options: "wait off"})
	old := s.directive
	s.directive = withApplication(old, "before")
	g.start()

	first := g.later("K1", order(100), fault("hold"))
	g.upstream.awaitHeld(1)
	s.directive = withApplication(old, "after")
	g.reload()
	require.Equal(t, problem(409, "in-flight"), g.post("K1", order(100)).problem())
	require.Positive(t, named("after"))
	require.Positive(t, named("before"), "the slow request still needs it")
	g.upstream.Release(0)

	first().first(201)
	until(t, "the old pool is closed", func() bool { return named("before") == 0 })
	g.post("K1", order(100)).replays(first())
	g.settled(1)
}

func withApplication(directive, name string) string {
	return strings.Replace(directive, "?", "?application_name="+name+"&", 1)
}

func TestReloadToAConfigurationWithoutTheModuleLetsGoOfTheStore(t *testing.T) {
	t.Parallel()
	s := onPostgres(t)
	g := newGateway(t, s)
	first := g.later("K1", order(100), fault("hold"))
	g.upstream.awaitHeld(1)

	response, err := g.loadText("{\n admin " + g.admin + "\n persist_config off\n}\n")
	require.NoError(t, err)
	require.Equal(t, 200, response.StatusCode)
	g.upstream.Release(0)

	first().first(201)
	require.Equal(t, "completed", s.state(t, "K1"))
	until(t, "no session is left", func() bool { return s.sessions(t) == 0 })
}

func TestReloadThatFailsLeavesTheGatewayAsItWas(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		first := g.post("K1", order(100))

		good := g.config
		g.config.global = "no_such_option"
		response, err := g.load()
		require.NoError(t, err)
		require.Equal(t, 400, response.StatusCode)
		g.config = good

		g.post("K1", order(100)).replays(first)
		g.post("K2", order(100)).first(201)
		g.reload()
		g.post("K2", order(100))
		g.settled(2)
	})
}

func TestOrderlyStopWaitsForTheAnswer(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		first := g.later("K1", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		g.process().stop(t)
		g.process().awaitLog(t, "shutting down apps")
		g.upstream.Release(0)

		first().first(201)
		g.process().awaitExit(t)
		require.Equal(t, 0, g.process().code())
		g.start()
		g.post("K1", order(100)).replays(first())
		g.settled(1)
	})
}

func TestStopThatDoesNotWaitLongEnoughNeverExecutesAgain(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{grace: "100ms", options: "wait off"})

		first := g.later("K1", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		g.process().stop(t)
		g.process().awaitExit(t)
		require.Error(t, first().err)
		g.upstream.Release(0)
		g.start()

		require.Contains(t, []problemAnswer{problem(409, "in-flight"), problem(409, "outcome-unknown")}, g.post("K1", order(100)).problem())
		s.leasesAreOver(t)
		s.awaitState(t, "K1", "unknown")
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
		require.Equal(t, 1, g.upstream.executions("K1"))
	})
}

func TestSecondProcessOnTheSameFileIsRefused(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	g := newGateway(t, s)
	second := prepare(t, s, config{})

	second.launch()
	second.process().awaitExit(t)

	require.NotEqual(t, 0, second.process().code())
	said := strings.Join(second.process().log.all(), "\n")
	require.Contains(t, said, s.path)
	require.Contains(t, said, "in use")
	g.post("K1", order(100)).first(201)
	g.settled(1)
}

func TestEmbeddedStoreSaysThatItServesOneInstance(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t))

	g.process().awaitLog(t, "the embedded store serves one instance only")
}

func TestStoreIsAFileInCaddysDataDirectoryUnlessSaidOtherwise(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	s.directive = ""
	g := newGateway(t, s)

	first := g.post("K1", order(100))
	g.restart()

	g.post("K1", order(100)).replays(first)
	require.FileExists(t, g.dir+"/caddy/idempotency/records.db")
	require.Equal(t, 1, g.upstream.executions("K1"))
}

// A configuration that is refused, after this module has started, leaves no trace
// in the one that stays.
func TestRefusedReloadChangesNothing(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		plain := s.directive
		s.directive = plain + "\nencrypt k1 " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a", 32)))
		g := newGateway(t, s)
		first := g.post("K1", order(100))
		first.first(201)
		g.post("K2", order(100), fault("vanish"))

		taken, err := net.Listen("tcp", freeAddr(t))
		require.NoError(t, err)
		defer taken.Close()
		s.directive = plain
		g.config.options = `verify GET http://{upstream}/nowhere?ref={idempotency.key} {
			exists 200
			absent 404
			after 1ms
		}`
		refused := strings.Replace(g.caddyfile(), "http://"+g.addr+" {", "http://"+g.addr+", http://"+taken.Addr().String()+" {", 1)
		response, err := g.loadText(refused)
		require.NoError(t, err)
		require.NotEqual(t, http.StatusOK, response.StatusCode)

		swept := g.storeCalls("purge")
		until(t, "it has swept twice", func() bool { return g.storeCalls("purge") >= swept+2 })
		g.post("K1", order(100)).replays(first)
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K2", order(100)).problem(), "nobody has verified it")
		g.post("K3", order(100)).first(201)
		require.NotContains(t, string(s.record(t, "K3").Body), "ord-", "it is sealed as before")
	})
}
