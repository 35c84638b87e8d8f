package caddymodule_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/examples/orders/service"
	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// verify is how the order service is asked for an order, by the reference that
// every request of a test carries.
func verify(options ...string) string {
	block := ""
	for _, option := range options {
		block += option + "\n"
	}
	return fmt.Sprintf(`verify GET http://{upstream}/orders?client_ref={idempotency.key} {
		exists   200 orders.#>0
		absent   200
		body     orders.0
		location /orders/{body.orders.0.id}
		%s
	}`, block)
}

func TestRetryAfterAnUnknownOutcomeIsAnsweredByWhatTheUpstreamHas(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "upstream_timeout 300ms", verify())

		first := g.post("K1", order(100), fault("hold-after")) // committed, and not answered
		require.Equal(t, problem(504, "outcome-unknown"), first.problem())
		again := g.post("K1", order(100))

		require.Equal(t, 201, again.status)
		require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
		require.Equal(t, "/orders/"+g.upstream.Orders()[0].ID, again.header.Get("Location"))
		require.Contains(t, string(again.body), g.upstream.Orders()[0].ID)
		g.settled(1)
	})
}

func TestUnknownOutcomeIsVerifiedFromTheBackground(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "wait off", verify())

		g.post("K1", order(100), fault("vanish")) // committed, and not answered
		s.awaitState(t, "K1", "completed")

		again := g.post("K1", order(100))
		require.Equal(t, 201, again.status)
		require.Equal(t, "/orders/"+g.upstream.Orders()[0].ID, again.header.Get("Location"))
		g.settled(1)
	})
}

func TestAbsentObjectReopensTheKey(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, verify("after 1ms"))

		require.Equal(t, problem(502, "outcome-unknown"), g.post("K1", order(100), fault("reset")).problem())
		require.Equal(t, 201, g.post("K1", order(100)).status)

		require.Equal(t, 2, g.upstream.executions("K1"), "the first of which made nothing")
		require.Equal(t, 1, g.upstream.made("K1"))
	})
}

func TestAbsentObjectIsNotBelievedWhileTheUpstreamMayStillCommit(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "upstream_timeout 300ms", verify("after 1h"))

		require.Equal(t, problem(504, "outcome-unknown"), g.post("K1", order(100), fault("hold")).problem())
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem(), "the order is not there, yet")
		g.upstream.Release(0)
		g.upstream.await("the order is made, late", func(stats service.Stats) bool { return stats.Orders == 1 })

		again := g.post("K1", order(100))
		require.Equal(t, 201, again.status)
		g.settled(1)
	})
}

func TestAnswerThatIsNoFindingLeavesTheOutcomeUnknown(t *testing.T) {
	for name, probe := range map[string]string{
		"another status": `verify GET http://{upstream}/orders/missing?ref={idempotency.key} {
			exists 200
		}`,
		"not JSON": `verify GET http://{upstream}/metrics?ref={idempotency.key} {
			exists 404 orders.#>0
		}`,
		"nobody there": `verify GET http://127.0.0.1:1/?ref={idempotency.key} {
			exists 200
			absent 404
			after 1ms
		}`,
	} {
		t.Run(name, func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, s *testStore) {
				g := newGateway(t, s, probe)

				g.post("K1", order(100), fault("reset"))
				require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
				require.Equal(t, "unknown", s.state(t, "K1"))
				require.Equal(t, 1, g.upstream.executions("K1"))
			})
		})
	}
}

func TestClientsThatComeBackDoNotFloodTheUpstreamWithProbes(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		raw := newRawUpstream(t, func(c *rawConn) {
			for {
				r := c.read()
				if r == nil || r.Method == "POST" {
					return // without an answer
				}
				c.say("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
			}
		})
		// No probe but those of clients.
		g := configure(t, s, config{upstream: raw.addr, sweep: "1h", options: `wait 50ms
		verify GET http://{upstream}/orders?client_ref={idempotency.key} {
			exists 200
		}`})
		g.post("K1", order(100))
		const retries = 20
		begun := time.Now()

		for range retries {
			require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
		}

		pauses := int(time.Since(begun) / store.ProbeGap)
		require.GreaterOrEqual(t, raw.probes(), 1)
		require.LessOrEqual(t, raw.probes(), 1+pauses)
		require.Less(t, pauses, retries-1, "or the story shows nothing")
	})
}

func TestTwoInstancesVerifyEachOutcomeOnceAtATime(t *testing.T) {
	t.Parallel()
	s := onPostgres(t)
	g := configure(t, s, config{options: `wait off
	verify GET http://{upstream}/orders?client_ref={idempotency.key} {
		exists  200 orders.#>0
		timeout 20s
	}`})
	other := g.beside()

	// Every probe is held, so that a second one of the same record would show.
	require.NoError(t, g.upstream.Arm(service.Arming{Fault: "hold", Times: -1, Method: "GET"}))
	const outcomes = 3
	for n := range outcomes {
		g.post(fmt.Sprint("K", n), order(n), fault("vanish"))
	}
	g.upstream.awaitHeld(outcomes)
	// Whoever is not held by its probes looks again, and finds nothing to probe.
	taken := g.storeCalls("take_unknown") + other.storeCalls("take_unknown")
	until(t, "one has looked again", func() bool {
		return g.storeCalls("take_unknown")+other.storeCalls("take_unknown") > taken+1
	})
	require.Equal(t, outcomes, g.upstream.Release(0), "one probe of each")
	g.upstream.Disarm()

	for n := range outcomes {
		s.awaitState(t, fmt.Sprint("K", n), "completed")
	}
	g.settled(outcomes)
}

func TestInstanceKilledDuringAProbeChangesNothing(t *testing.T) {
	t.Parallel()
	s := onPostgres(t)
	g := newGateway(t, s, "wait off", verify("timeout 20s"))
	other := g.beside()

	require.NoError(t, g.upstream.Arm(service.Arming{Fault: "hold", Times: 1, Method: "GET"}))
	g.post("K1", order(100), fault("vanish"))
	g.upstream.awaitHeld(1)
	// Whoever of the two is probing.
	g.kill()
	other.kill()
	g.upstream.Release(0)
	require.Equal(t, "unknown", s.state(t, "K1"))

	g.start()
	s.exec(t, `UPDATE idempotency_records SET probing_until = now() - interval '1 second'`) // the hold is over
	s.awaitState(t, "K1", "completed")
	require.Equal(t, 201, g.post("K1", order(100)).status)
	g.settled(1)
}

func TestValuesInTheProbeCannotLeaveTheirPlace(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		raw := newRawUpstream(t, func(c *rawConn) {
			for {
				r := c.read()
				if r == nil {
					return
				}
				if r.Method == "POST" {
					return // without an answer
				}
				c.say("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
			}
		})
		g := configure(t, s, config{upstream: raw.addr, options: `verify GET http://{upstream}/orders?client_ref={idempotency.key}&x=1 {
			exists 200
		}`})

		g.post(`"a&b=c#d%2e"`, order(100))
		g.post(`"a&b=c#d%2e"`, order(100))

		require.Equal(t, "/orders?client_ref=a%26b%3Dc%23d%252e&x=1", raw.last(t).RequestURI)
	})
}

func TestRedirectIsNoFinding(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		elsewhere := newRawUpstream(t, func(c *rawConn) {
			for c.read() != nil {
				c.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
		})
		raw := newRawUpstream(t, func(c *rawConn) {
			for {
				r := c.read()
				if r == nil || r.Method == "POST" {
					return
				}
				c.say("HTTP/1.1 302 Found\r\nLocation: http://" + elsewhere.addr + "/\r\nContent-Length: 0\r\n\r\n")
			}
		})
		g := configure(t, s, config{upstream: raw.addr, options: `verify GET http://{upstream}/orders?ref={idempotency.key} {
			exists 200
		}`})

		g.post("K1", order(100))
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
		require.Zero(t, elsewhere.connections())
	})
}

// Its bytes would be shown to a retry as if they were plain.
func TestAnswerInACodingThatNobodyAskedForIsNoFinding(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		raw := newRawUpstream(t, func(c *rawConn) {
			for {
				r := c.read()
				if r == nil || r.Method == "POST" {
					return
				}
				c.say("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: br\r\nContent-Length: 6\r\n\r\n\x0b\x00\x80{}\x03")
			}
		})
		g := configure(t, s, config{upstream: raw.addr, options: `verify GET http://{upstream}/orders?ref={idempotency.key} {
			exists 200
		}`})

		g.post("K1", order(100))
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
		require.Equal(t, "unknown", s.state(t, "K1"))
	})
}

func TestOutcomeIsNotVerifiedByAnothersObject(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{before: users(t, "alice", "bob"), options: `actor {http.auth.user.id}
			verify GET http://{upstream}/orders?client_ref={idempotency.key}&ref={idempotency.actor} {
				exists 200 orders.#>0
				absent 200
				body   orders.0
				after  1ms
			}`})
		order := func(who string) string { return fmt.Sprintf(`{"amount":100,"ref":%q}`, who) } // who tells the service for whom it is

		hers := g.post("K1", order("alice"), user("alice"))
		hers.first(201)
		require.Equal(t, problem(502, "outcome-unknown"), g.post("K1", order("bob"), user("bob"), fault("reset")).problem(), "nothing was made")
		his := g.post("K1", order("bob"), user("bob"))

		his.first(201)
		require.NotEqual(t, hers.id(), his.id())
		require.Equal(t, 1, g.upstream.made("bob"))
	})
}

// Records are found by their operation, whichever route and instance they are of.
func TestOutcomeOfARouteWithAnotherTenantIsNotVerified(t *testing.T) {
	t.Parallel()
	s := onPostgres(t)
	g := newGateway(t, s, "tenant acme", verify())
	g.config.options = "tenant globex"
	other := g.beside()

	acmes := g.post("K1", order(100))
	acmes.first(201)
	other.post("K1", order(100), fault("reset")) // nothing was made
	until(t, "the verifier has been there", func() bool { return g.storeCalls("put_off")+g.storeCalls("resolve") > 0 })

	require.Equal(t, problem(409, "outcome-unknown"), other.post("K1", order(100)).problem())
	g.post("K1", order(100)).replays(acmes)
}
