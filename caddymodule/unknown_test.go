package caddymodule_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRetryAfterTimeoutNeverReachesTheUpstream(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "upstream_timeout 300ms")

		first := g.post("K1", order(100), fault("hold"))
		require.Equal(t, problem(504, "outcome-unknown"), first.problem())
		require.True(t, *first.details().Retryable)
		require.NotEmpty(t, first.header.Get("Retry-After"))

		again := g.post("K1", order(100))
		require.Equal(t, problem(409, "outcome-unknown"), again.problem())
		require.True(t, *again.details().Retryable)
		require.NotEmpty(t, again.header.Get("Retry-After"))

		g.upstream.Release(0) // and now the order is made, late
		g.restart()
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
		require.Equal(t, "upstream timeout", s.record(t, "K1").Reason)
		require.Equal(t, 1, g.upstream.executions("K1"))
	})
}

func TestTimeNeverReopensAnUnknownOutcome(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "keep_for 1d")

		g.post("K1", order(100), fault("vanish"))
		for _, column := range []string{"lease_until", "replay_until", "keep_until"} {
			s.itIsPast(t, "unknown", column)
		}
		swept := g.storeCalls("purge")
		until(t, "all has been swept twice", func() bool { return g.storeCalls("purge") >= swept+2 })

		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
		require.Equal(t, 1, g.upstream.executions("K1"))
	})
}

// What an upstream may do after it has a request, none of which says that it did
// not execute it.
func TestLostAnswerIsAnUnknownOutcome(t *testing.T) {
	for _, c := range []struct{ fault, means string }{
		{"vanish", "closes the connection without an answer"},
		{"reset", "resets the connection before the commit"},
		{"reset-after", "resets the connection after the commit"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, s *testStore) {
				g := newGateway(t, s)

				first := g.post("K1", order(100), fault(c.fault))
				again := g.post("K1", order(100))

				require.Equal(t, problem(502, "outcome-unknown"), first.problem(), c.means)
				require.Equal(t, problem(409, "outcome-unknown"), again.problem())
				require.Equal(t, 1, g.upstream.executions("K1"))
			})
		})
	}
}

func TestUpstreamThatDiesIsNeverAskedTwice(t *testing.T) {
	for _, moment := range []string{"die", "die-after"} {
		t.Run(moment, func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, s *testStore) {
				g := newGateway(t, s)

				first := g.post("K1", order(100), fault(moment))
				<-g.upstream.Dead()
				g.upstream.up()
				again := g.post("K1", order(100))

				require.Equal(t, problem(502, "outcome-unknown"), first.problem())
				require.Equal(t, problem(409, "outcome-unknown"), again.problem())
				require.Equal(t, 1, g.upstream.executions("K1"))
			})
		})
	}
}

func TestServerErrorIsPassedOnAndItsOutcomeIsUnknown(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		first := g.post("K1", order(100), fault("status:500")) // after the commit
		again := g.post("K1", order(100))

		first.first(500)
		require.Contains(t, string(first.body), "status 500 by a fault")
		require.Equal(t, problem(409, "outcome-unknown"), again.problem())
		require.Equal(t, 500, again.details().OriginalStatus)
		require.Equal(t, 1, g.upstream.made("K1"))
	})
}

func TestGatewayKilledWhileTheUpstreamWorksNeverExecutesAgain(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "wait off")

		first := g.later("K1", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		g.kill()
		require.Error(t, first().err)
		g.upstream.Release(0)
		g.start()

		require.Equal(t, problem(409, "in-flight"), g.post("K1", order(100)).problem(), "the lease is not over")
		s.leasesAreOver(t)
		s.awaitState(t, "K1", "unknown")
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
		require.Equal(t, "lease over", s.record(t, "K1").Reason)
		require.Equal(t, 1, g.upstream.executions("K1"))
	})
}

func TestLeaseThatIsOverWhileTheUpstreamStillWorksIsSettledByItsAnswer(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		first := g.later("K1", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		s.leasesAreOver(t)
		s.awaitState(t, "K1", "unknown")
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
		g.upstream.Release(0)

		first().first(201)
		g.post("K1", order(100)).replays(first())
		g.settled(1)
	})
}

func TestEmptyPostIsNotSentAgainWhenAKeptConnectionDies(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		upstream := newRawUpstream(t, func(c *rawConn) {
			for n := 1; c.read() != nil; n++ {
				if c.number == 1 && n == 2 {
					c.reset() // it has the request, and says nothing
					return
				}
				c.say("HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nmade")
			}
		})
		g := configure(t, s, config{upstream: upstream.addr})

		g.post("K1", "", header("X-Idempotency-Key", "K1")).first(201)
		second := g.post("K2", "", header("X-Idempotency-Key", "K2"))

		require.Equal(t, problem(502, "outcome-unknown"), second.problem())
		require.Equal(t, 1, upstream.received("K2"))
		require.Equal(t, 1, upstream.connections(), "the connection was a kept one")
		require.Empty(t, upstream.last(t).Header.Get("Idempotency-Key"))
		require.Empty(t, upstream.last(t).Header.Get("X-Idempotency-Key"))
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K2", "").problem())
		require.Equal(t, 1, upstream.received("K2"))
	})
}

func TestUpstreamThatDiesBeforeItReadsIsNotProvedToHaveReadNothing(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		upstream := newRawUpstream(t, func(c *rawConn) {
			_, _ = c.reader.Peek(1) // so that it is accepted for certain, from the other side
			c.reset()
		})
		g := configure(t, s, config{upstream: upstream.addr})

		first := g.post("K1", order(100))
		again := g.post("K1", order(100))

		require.Equal(t, problem(502, "outcome-unknown"), first.problem())
		require.Equal(t, problem(409, "outcome-unknown"), again.problem())
		require.Equal(t, 1, upstream.connections())
	})
}

func TestUpstreamThatSpeaksNoHTTPIsAnUnknownOutcome(t *testing.T) {
	for name, nonsense := range map[string]string{
		"no HTTP at all":      "SSH-2.0-OpenSSH_9.9\r\n",
		"two lengths":         "HTTP/1.1 201 Created\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nmade",
		"a head that ends":    "HTTP/1.1 201 Created\r\nContent-Le",
		"a length of letters": "HTTP/1.1 201 Created\r\nContent-Length: four\r\n\r\nmade",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := newRawUpstream(t, func(c *rawConn) {
				c.read()
				c.say(nonsense)
			})
			g := configure(t, onSQLite(t), config{upstream: upstream.addr})

			require.Equal(t, problem(502, "outcome-unknown"), g.post("K1", order(100)).problem())
			require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
			require.Equal(t, 1, upstream.received("K1"))
		})
	}
}

func TestPanicInANextHandlerIsAnUnknownOutcome(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{after: "misbehave panic"})

		first := g.post("K1", order(100))
		again := g.post("K1", order(100))

		require.Equal(t, problem(502, "outcome-unknown"), first.problem())
		require.Equal(t, problem(409, "outcome-unknown"), again.problem())
		require.Equal(t, 1, g.upstream.executions("K1"))
		g.process().awaitLog(t, "panic in a handler after this one", "misbehaving")
	})
}

func TestPanicAfterTheHeadIsAnUnknownOutcome(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{after: "misbehave panic-late"})

		first := g.post("K1", order(100))

		require.Equal(t, problem(502, "outcome-unknown"), first.problem())
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
		require.Equal(t, 1, g.upstream.executions("K1"))
	})
}

func TestErrorOfANextHandlerProvesNothing(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{after: "misbehave error"})

		first := g.post("K1", order(100))

		require.Equal(t, problem(502, "outcome-unknown"), first.problem())
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
		require.Equal(t, 1, g.upstream.executions("K1"))
	})
}

// The upstream was asked, and what it said has not come: not a 200 that it never gave.
func TestAnswerThatNeverComesIsAnUnknownOutcome(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{after: "misbehave nothing"})

		first := g.post("K1", order(100))

		require.Equal(t, problem(502, "outcome-unknown"), first.problem())
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
		require.Equal(t, 1, g.upstream.executions("K1"))
	})
}

func TestSwitchOfProtocolsIsNoAnswerToAWrite(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		raw := newRawUpstream(t, func(c *rawConn) {
			if c.read() != nil {
				c.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
			}
		})
		g := configure(t, s, config{upstream: raw.addr})

		require.Equal(t, problem(502, "outcome-unknown"), g.post("K1", order(100)).problem())
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
		require.Equal(t, 1, raw.received("K1"))
	})
}

// Half of a number is another order's.
func TestBodyThatBrokeOffNamesNoResource(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		raw := newRawUpstream(t, func(c *rawConn) {
			if c.read() != nil {
				c.say("HTTP/1.1 201 Created\r\nContent-Length: 20\r\n\r\n{\"id\":1")
			}
		})
		g := configure(t, s, config{upstream: raw.addr, options: "resource id"})

		first := g.post("K1", order(100))

		require.Equal(t, problem(502, "response-incomplete"), first.problem())
		require.Empty(t, first.details().Resource)
		require.Empty(t, g.post("K1", order(100)).details().Resource)
	})
}
