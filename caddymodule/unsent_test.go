package caddymodule_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUpstreamThatDoesNotListenLeavesTheKeyOpen(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		g.upstream.down()
		first := g.post("K1", order(100))
		first.first(502)
		require.Empty(t, first.body, "it is Caddy's own answer")
		require.Empty(t, s.records(t))

		g.upstream.up()
		g.post("K1", order(100)).first(201)
		g.settled(1)
	})
}

// Caddy tries again for as long as lb_try_duration says, and each dial that fails
// is proof of its own.
func TestDialsThatFailForAsLongAsCaddyTriesLeaveTheKeyOpen(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{proxy: "lb_try_duration 300ms\nlb_try_interval 50ms"})

		g.upstream.down()
		g.post("K1", order(100)).first(502)
		require.Empty(t, s.records(t))

		g.upstream.up()
		g.post("K1", order(100)).first(201)
		g.settled(1)
	})
}

func TestSecondUpstreamTakesOverWhereTheFirstDoesNotListen(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		down := freeAddr(t)
		g := prepare(t, s, config{proxy: "lb_policy first\nlb_try_duration 5s\nfail_duration 30s"})
		g.config.upstream = down + " " + g.upstream.Addr()
		g.start()

		first := g.post("K1", order(100))

		first.first(201)
		g.post("K1", order(100)).replays(first)
		g.settled(1)
	})
}

// The error of the last dial alone would say that nothing was sent.
func TestRequestThatOneUpstreamReadIsNotUnsentBecauseTheNextDoesNotListen(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		upstream := newRawUpstream(t, func(c *rawConn) {
			c.read()
			c.reset()
		})
		// lb_retry_match makes Caddy send even a POST again.
		g := configure(t, s, config{
			upstream: upstream.addr + " " + freeAddr(t),
			proxy:    "lb_policy round_robin\nlb_try_duration 300ms\nlb_retry_match {\n method POST\n}\nfail_duration 30s",
		})

		first := g.post("K1", order(100))
		again := g.post("K1", order(100))

		require.Equal(t, "outcome-unknown", first.details().slug())
		require.Equal(t, problem(409, "outcome-unknown"), again.problem())
		require.Equal(t, 1, upstream.received("K1"))
		require.Equal(t, "unknown", s.state(t, "K1"))
	})
}

// The request comes after the handshake.
func TestTLSHandshakeThatFailsLeavesTheKeyOpen(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		upstream := newRawUpstream(t, func(c *rawConn) { c.say("HTTP/1.0 400 Bad Request\r\n\r\n") })
		g := configure(t, s, config{upstream: upstream.addr, proxy: "transport http {\ntls\n}"})

		g.post("K1", order(100)).first(502)

		require.Equal(t, 1, upstream.connections())
		require.Empty(t, s.records(t))
	})
}

// Whoever has read it may have executed it.
func TestRequestWhoseBodySomebodyReadIsNotUnsent(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{proxy: "request_buffers 1MiB"})

		g.upstream.down()
		first := g.post("K1", order(100))

		require.Equal(t, problem(502, "outcome-unknown"), first.problem())
		require.Equal(t, "unknown", s.state(t, "K1"))
	})
}

func TestNoHealthyUpstreamLeavesTheKeyOpen(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{proxy: "fail_duration 1h"})

		g.upstream.down()
		g.post("opens-the-circuit", order(100)).first(502)
		g.upstream.up()
		unhealthy := g.post("K1", order(100))
		unhealthy.first(503)
		require.Empty(t, unhealthy.body, "it is Caddy's own answer")
		require.Empty(t, s.records(t))
		g.process().awaitLog(t, "no upstreams available")

		g.config.proxy = ""
		g.reload()
		g.post("K1", order(100)).first(201)
		g.settled(1)
	})
}

func TestUpstreamThatFailsItsHealthCheckLeavesTheKeyOpen(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{proxy: "health_uri /no-such-page\nhealth_interval 50ms"})
		g.process().awaitLog(t, "status code out of tolerances", "health_checker.active")

		unhealthy := g.post("K1", order(100))

		unhealthy.first(503)
		require.Empty(t, s.records(t))
		require.Equal(t, 0, g.upstream.executions("K1"))
	})
}

func TestReleasedKeyIsWonByOneOfThoseWhoWait(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "wait 1m")
		const n = 10

		first := g.later("K1", order(100), fault("hold, status:429")) // which says that nothing was done
		g.upstream.awaitHeld(1)
		g.upstream.arm("hold", 1) // for the next winner
		var waiting []func() answer
		for range n {
			waiting = append(waiting, g.later("K1", order(100)))
		}
		g.awaitClaims(1 + n)
		g.upstream.Release(0)
		first().first(429)
		g.upstream.awaitHeld(1)
		g.upstream.Release(0)

		firsts := 0
		for _, answer := range waiting {
			a := answer()
			require.NoError(t, a.err)
			require.Equal(t, 201, a.status, "%s", a.body)
			require.Equal(t, string(waiting[0]().body), string(a.body))
			if !a.isReplay() {
				firsts++
			}
		}
		require.Equal(t, 1, firsts)
		require.Equal(t, 2, g.upstream.executions("K1"), "the one that was turned away, and the one that won")
		require.Len(t, s.records(t), 1)
	})
}
