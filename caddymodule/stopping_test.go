package caddymodule_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/examples/orders/service"
	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
)

func TestOutcomeThatTheStoreNeverTookIsGivenUpAloudWhenTheStoreIsClosed(t *testing.T) {
	t.Parallel()
	s := onWiredPostgres(t)
	g := newGateway(t, s, "wait off")
	answer := g.later("K1", order(100), fault("hold"))
	g.upstream.awaitHeld(1)
	s.link.Cut()
	g.upstream.Release(0)
	require.Equal(t, "true", answer().header.Get("Idempotency-Unsettled"))
	require.Equal(t, 1.0, g.metric("caddy_idempotency_unsettled"))

	s.directive = withApplication(s.directive, "after") // a pool of its own
	g.reload()

	g.process().awaitLog(t, `"level":"error"`, "outcome is given up", `"key_digest":"`+store.Identity{Key: "K1"}.KeyDigest())
	require.Equal(t, 1.0, g.metric("caddy_idempotency_given_up_total"))
	require.Zero(t, g.metric("caddy_idempotency_unsettled"))
	s.link.Restore()
	s.leasesAreOver(t)
	s.awaitState(t, "K1", "unknown")
}

// Tried one after another, these outcomes would take a minute.
func TestStopIsNotHeldUpByOutcomesThatTheStoreDoesNotTake(t *testing.T) {
	t.Parallel()
	s := postgresStore(t, pgtest.New(t), nil, "lock_timeout 2s")
	g := configure(t, s, config{sweep: "1h"})
	const n = 30
	var answers []func() answer
	for i := range n {
		answers = append(answers, g.later(fmt.Sprint("K", i), order(i), fault("hold")))
	}
	g.upstream.awaitHeld(n)
	rival := s.postgres.Conn(t)
	_, err := rival.Exec(t.Context(), `BEGIN; SELECT 1 FROM idempotency_records FOR UPDATE`)
	require.NoError(t, err)
	g.upstream.Release(0)
	for _, answer := range answers {
		require.Equal(t, "true", answer().header.Get("Idempotency-Unsettled"), answer().err)
	}

	g.process().stop(t)
	g.process().awaitExit(t)

	require.Equal(t, 0, g.process().code())
	require.Equal(t, n, strings.Count(strings.Join(g.process().log.all(), "\n"), "outcome is given up"))
}

func TestStopBreaksAProbeOff(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "wait off", verify("timeout 10m"))
		require.NoError(t, g.upstream.Arm(service.Arming{Fault: "hold", Times: 1, Method: "GET"}))
		g.post("K1", order(100), fault("vanish"))
		g.upstream.awaitHeld(1)

		g.process().stop(t)
		g.process().awaitExit(t)

		require.Equal(t, 0, g.process().code())
		require.Equal(t, "unknown", s.state(t, "K1"))
	})
}
