package caddymodule_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRetryGetsTheStoredAnswer(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		first := g.post("K1", order(100))
		again := g.post("K1", order(100))

		first.first(201)
		again.replays(first)
		require.Equal(t, first.header.Get("Location"), again.header.Get("Location"))
		g.settled(1)
	})
}

func TestFiftyAtOnceAreOneExecutionAndOneAnswer(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "wait 1m")
		const n = 50

		g.upstream.arm("hold", 1)
		var answers []func() answer
		for range n {
			answers = append(answers, g.later("K1", order(100)))
		}
		g.upstream.awaitHeld(1)
		g.awaitClaims(n)
		g.upstream.Release(0)

		firsts := 0
		for _, answer := range answers {
			a := answer()
			require.NoError(t, a.err)
			require.Equal(t, 201, a.status, "%s", a.body)
			require.Equal(t, string(answers[0]().body), string(a.body))
			if !a.isReplay() {
				firsts++
			}
		}
		require.Equal(t, 1, firsts)
		g.settled(1)
		g.awaitCounted("first", 1)
		g.awaitCounted("waited", n-1)
	})
}

func TestFiftyAtOnceWithoutWaitingAreToldThatItIsInFlight(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "wait off")

		first := g.later("K1", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		var answers []func() answer
		for range 49 {
			answers = append(answers, g.later("K1", order(100)))
		}
		for _, answer := range answers {
			require.Equal(t, problem(409, "in-flight"), answer().problem())
		}
		g.upstream.Release(0)

		first().first(201)
		g.post("K1", order(100)).replays(first())
		g.settled(1)
	})
}

func TestOtherPayloadIsRefusedDuringAndAfterTheFirst(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		first := g.later("K1", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		during := g.post("K1", order(200)) // at once, although the first is still being executed
		g.upstream.Release(0)
		first().first(201)
		after := g.post("K1", order(200))

		for _, refused := range []answer{during, after} {
			require.Equal(t, problem(422, "key-reused"), refused.problem())
			require.False(t, *refused.details().Retryable)
			require.Equal(t, []string{"amount"}, refused.details().Differs)
			require.NotContains(t, string(refused.body), first().id(), "nothing of the stored answer is shown")
			require.NotContains(t, string(refused.body), "200")
		}
		g.post("K1", order(100)).replays(first())
		g.settled(1)
	})
}

func TestOtherPayloadIsRefusedAlsoWhenOutcomeIsUnknownOrExpired(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		g.post("unknown", order(100), fault("vanish"))
		g.post("expired", order(100)).first(201)
		s.windowsAreOver(t)
		s.awaitState(t, "expired", "expired")

		for _, key := range []string{"unknown", "expired"} {
			require.Equal(t, problem(422, "key-reused"), g.post(key, order(200)).problem(), key)
		}
	})
}

func TestSameKeyForAnotherRequestIsRefused(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		g.post("K1", order(100)).first(201)

		for name, other := range map[string]func() answer{
			"method": func() answer { return g.post("K1", order(100), method("PATCH")) },
			"path":   func() answer { return g.post("K1", order(100), path("/orders/ord-1")) },
			"query":  func() answer { return g.post("K1", order(100), query("dry_run=1")) },
			"media type": func() answer {
				return g.post("K1", "item=bolt", header("Content-Type", "application/x-www-form-urlencoded"))
			},
			"empty body": func() answer { return g.post("K1", "") },
		} {
			require.Equal(t, problem(422, "key-reused"), other().problem(), name)
		}
		g.settled(1)
	})
}

func TestSamePayloadInOtherWordsIsTheSamePayload(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		first := g.post("K1", order(100))
		again := g.post("K1", `{ "currency" : "CNY", "amount": 1.00e2, "item": "b\u006flt" }`)

		again.replays(first)
		g.settled(1)
	})
}

func TestAmountsThatAreOneFloatAreTwoPayloads(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		g.post("K1", `{"amount":9007199254740993}`).first(201)

		require.Equal(t, problem(422, "key-reused"), g.post("K1", `{"amount":9007199254740992}`).problem())
		g.settled(1)
	})
}

func TestClientThatHangsUpLeavesARecordedOrder(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		hangUp := g.hangUp("K1", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		hangUp()
		g.upstream.Release(0)

		s.awaitState(t, "K1", "completed")
		again := g.post("K1", order(100))
		require.Equal(t, 201, again.status)
		require.True(t, again.isReplay())
		require.Equal(t, g.upstream.Orders()[0].ID, again.id())
		g.settled(1)
	})
}

func TestClientThatHangsUpWhileItWaitsChangesNothing(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "wait 1m")

		first := g.later("K1", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		hangUp := g.hangUp("K1", order(100))
		g.awaitClaims(2)
		hangUp()
		g.awaitCounted("client_gone", 1)
		g.upstream.Release(0)

		first().first(201)
		g.settled(1)
	})
}

func TestDifferentKeysAreDifferentOrders(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		const n = 20

		var answers []func() answer
		for i := range n {
			answers = append(answers, g.later(fmt.Sprintf("K%d", i), order(100)))
		}

		ids := map[string]bool{}
		for _, answer := range answers {
			answer().first(201)
			ids[answer().id()] = true
		}
		require.Len(t, ids, n)
		g.settled(n)
	})
}

func TestLateRetryIsToldThatTheResponseHasExpired(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		first := g.post("K1", order(100))
		s.windowsAreOver(t)
		s.awaitState(t, "K1", "expired")
		late := g.post("K1", order(100))

		require.Equal(t, problem(410, "response-expired"), late.problem())
		require.False(t, *late.details().Retryable)
		require.Equal(t, 201, late.details().OriginalStatus)
		require.Equal(t, first.header.Get("Location"), late.details().Resource)
		tombstone := s.record(t, "K1")
		require.Nil(t, tombstone.Header)
		require.Nil(t, tombstone.Body)
		require.Equal(t, 1, g.upstream.executions("K1"))
	})
}

func TestReplayWindowIsOverBeforeTheSweeperComes(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{sweep: "1h"})

		g.post("K1", order(100)).first(201)
		s.windowsAreOver(t)

		require.Equal(t, problem(410, "response-expired"), g.post("K1", order(100)).problem())
		require.Equal(t, "completed", s.state(t, "K1"), "the sweeper has not been there")
	})
}

func TestForgottenTombstoneLeavesTheKeyOpen(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "keep_for 30d")

		g.post("K1", order(100)).first(201)
		s.windowsAreOver(t)
		s.awaitState(t, "K1", "expired")
		s.tombstonesAreOver(t)
		s.awaitState(t, "K1", "")

		g.post("K1", order(100)).first(201)
		require.Equal(t, 2, g.upstream.executions("K1"), "keep_for promised no more")
	})
}

func TestStoredAnswerOutlivesARestart(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		first := g.post("K1", order(100))
		g.kill()
		g.start()

		g.post("K1", order(100)).replays(first)
		g.settled(1)
	})
}
