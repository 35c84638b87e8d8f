package caddymodule_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
)

func TestDatabaseThatIsDownMeans503AndAnUntouchedUpstream(t *testing.T) {
	t.Parallel()
	s := onWiredPostgres(t)
	g := newGateway(t, s)

	s.link.Cut()
	refused := g.post("K1", order(100))
	require.Equal(t, problem(503, "store-unavailable"), refused.problem())
	require.True(t, *refused.details().Retryable)
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	require.Equal(t, 0, g.upstream.executions("K1"))

	s.link.Restore()
	g.post("K1", order(100)).first(201)
	g.settled(1)
}

func TestDatabaseThatIsDownAtStartIsUsedWhenItIsUp(t *testing.T) {
	t.Parallel()
	s := onWiredPostgres(t)
	s.link.Cut()
	g := newGateway(t, s)

	require.Equal(t, problem(503, "store-unavailable"), g.post("K1", order(100)).problem())
	require.Equal(t, 0, g.upstream.executions("K1"))

	s.link.Restore()
	g.process().awaitLog(t, "store is open")
	g.post("K1", order(100)).first(201)
	g.settled(1)
}

func TestDatabaseThatGoesAwayWhileTheUpstreamWorksIsToldWhenItIsBack(t *testing.T) {
	t.Parallel()
	s := onWiredPostgres(t)
	g := newGateway(t, s)

	answer := g.later("K1", order(100), fault("hold"))
	g.upstream.awaitHeld(1)
	s.link.Cut()
	g.upstream.Release(0)

	first := answer()
	first.first(201)
	require.Equal(t, "true", first.header.Get("Idempotency-Unsettled"))
	require.Equal(t, g.upstream.Orders()[0].ID, first.id())
	require.Equal(t, 1.0, g.metric("caddy_idempotency_unsettled"))
	g.awaitCounted("unsettled", 1)
	require.Equal(t, problem(503, "store-unavailable"), g.post("K1", order(100)).problem())

	s.link.Restore()
	s.awaitState(t, "K1", "completed")
	again := g.post("K1", order(100))
	again.replays(first)
	require.Empty(t, again.header.Get("Idempotency-Unsettled"))
	until(t, "nothing is unsettled", func() bool { return g.metric("caddy_idempotency_unsettled") == 0 })
	g.settled(1)
}

func TestKeyIsLoggedAsReleasedWhenItIs(t *testing.T) {
	t.Parallel()
	s := onWiredPostgres(t)
	g := newGateway(t, s)

	answer := g.later("K1", order(100), fault("hold, status:429"))
	g.upstream.awaitHeld(1)
	s.link.Cut()
	g.upstream.Release(0)
	answer().first(429)

	g.process().awaitLog(t, "outcome is not stored yet", digestOf("K1"))
	for _, line := range g.process().log.all() {
		require.NotContains(t, line, "key released")
	}
	s.link.Restore()
	g.process().awaitLog(t, "key released", "status 429", digestOf("K1"))
	require.Empty(t, s.records(t))
}

func TestOutcomeThatCouldNotBeStoredIsUnknownAfterACrash(t *testing.T) {
	t.Parallel()
	s := onWiredPostgres(t)
	g := newGateway(t, s, "wait off")

	answer := g.later("K1", order(100), fault("hold"))
	g.upstream.awaitHeld(1)
	s.link.Cut()
	g.upstream.Release(0)
	require.Equal(t, "true", answer().header.Get("Idempotency-Unsettled"))
	g.kill()
	s.link.Restore()
	g.start()

	require.Equal(t, problem(409, "in-flight"), g.post("K1", order(100)).problem())
	s.leasesAreOver(t)
	s.awaitState(t, "K1", "unknown")
	require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
	require.Equal(t, 1, g.upstream.executions("K1"))
}

func TestLostAcknowledgementOfAClaimIsResolvedByItsToken(t *testing.T) {
	t.Parallel()
	s := onWiredPostgres(t)
	g := configure(t, s, config{sweep: "1h"})
	until(t, "the first sweep is over", func() bool { return g.storeCalls("stats") == 1 })

	s.link.LoseReply("COMMIT") // of the next transaction, which claims the record
	first := g.post("K1", order(100))

	require.Equal(t, 1, s.link.Lost())
	first.first(201)
	g.post("K1", order(100)).replays(first)
	g.settled(1)
}

func TestLostAcknowledgementOfACompletionIsNoLoss(t *testing.T) {
	t.Parallel()
	s := onWiredPostgres(t)
	g := configure(t, s, config{sweep: "1h"})
	until(t, "the first sweep is over", func() bool { return g.storeCalls("stats") == 1 })

	answer := g.later("K1", order(100), fault("hold"))
	g.upstream.awaitHeld(1)
	s.link.LoseReply("COMMIT") // of the next transaction, which completes the record
	g.upstream.Release(0)
	first := answer()

	require.Equal(t, 1, s.link.Lost())
	first.first(201)
	require.Empty(t, first.header.Get("Idempotency-Unsettled"))
	g.post("K1", order(100)).replays(first)
	g.settled(1)
}

// The row is there, nobody was told so, and nobody may forward on a guess.
func TestClaimThatCannotBeProvedIsNotForwarded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := postgresStore(t, db, pgtest.Wire(t, db.DSN), "timeout 500ms", "lock_timeout 200ms")
	g := configure(t, s, config{sweep: "1h"})
	until(t, "the first sweep is over", func() bool { return g.storeCalls("stats") == 1 })

	s.link.HoldReplies()
	refused := g.post("K1", order(100))
	require.Equal(t, problem(503, "store-unavailable"), refused.problem())
	require.Equal(t, 0, g.upstream.executions("K1"))

	s.link.Cut()
	s.link.Restore()
	s.awaitState(t, "K1", "") // released by the token, without waiting for the lease
	g.post("K1", order(100)).first(201)
	g.settled(1)
}

func TestLockThatIsNotGrantedMeans503AndTheKeyWorksLater(t *testing.T) {
	t.Parallel()
	s := postgresStore(t, pgtest.New(t), nil, "lock_timeout 200ms")
	g := newGateway(t, s)
	blocker := s.postgres.Conn(t)
	_, err := blocker.Exec(t.Context(), `BEGIN`)
	require.NoError(t, err)
	_, err = blocker.Exec(t.Context(), `INSERT INTO idempotency_records
		(tenant, actor, operation, key, state, claim_token, fingerprint_algorithm, fingerprint_version, fingerprint, claimed_at, lease_until)
		VALUES ('default', 'shared', 'create-order', 'K1', 'executing', gen_random_uuid(), 1, '', '', now(), now())`)
	require.NoError(t, err)

	refused := g.post("K1", order(100))
	require.Equal(t, problem(503, "store-unavailable"), refused.problem())
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	require.Equal(t, 0, g.upstream.executions("K1"))

	_, err = blocker.Exec(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
	g.post("K1", order(100)).first(201)
	g.settled(1)
}

func TestClientThatHangsUpWhileTheRecordIsReadIsNoFailureOfTheStore(t *testing.T) {
	t.Parallel()
	s := postgresStore(t, pgtest.New(t), nil, "timeout 1m", "lock_timeout 1m")
	g := newGateway(t, s, "wait 1m")
	first := g.later("K1", order(100), fault("hold"))
	g.upstream.awaitHeld(1)
	other := g.beside()
	hangUp := other.hangUp("K1", order(100))
	other.awaitClaims(1)
	blocker := s.postgres.Conn(t)
	_, err := blocker.Exec(t.Context(), `BEGIN`)
	require.NoError(t, err)
	_, err = blocker.Exec(t.Context(), `SELECT 1 FROM idempotency_records WHERE key = 'K1' FOR UPDATE`)
	require.NoError(t, err)
	s.postgres.WaitForLockWait(t, 1) // the read

	hangUp()
	until(t, "the gateway notices it", func() bool {
		// The only client left is the one that asks.
		return strings.Count(other.ask("/debug/pprof/goroutine?debug=2"), "net/http.(*connReader).backgroundRead(") == 1
	})
	_, err = blocker.Exec(t.Context(), `ROLLBACK`)
	require.NoError(t, err)

	until(t, "the request is counted", func() bool { return other.counted("client_gone")+other.counted("store_error") == 1 })
	require.Equal(t, 1, other.counted("client_gone"))
	g.upstream.Release(0)
	first().first(201)
	g.settled(1)
}

func TestRecordInAStateOfAnotherVersionKeepsItsKeyClosed(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		g.post("K1", order(100)).first(201)

		s.exec(t, `UPDATE idempotency_records SET state = 'refunded'`)

		require.Equal(t, problem(503, "store-unavailable"), g.post("K1", order(100)).problem())
		require.Equal(t, 1, g.upstream.executions("K1"))
	})
}

func TestTwoInstancesOnOneDatabaseExecuteOnce(t *testing.T) {
	t.Parallel()
	s := onPostgres(t)
	one := newGateway(t, s, "wait 1m")
	two := one.beside()
	const n = 10

	one.upstream.arm("hold", 1)
	var answers []func() answer
	for range n {
		answers = append(answers, one.later("K1", order(100)), two.later("K1", order(100)))
	}
	one.upstream.awaitHeld(1)
	one.awaitClaims(n)
	two.awaitClaims(n)
	one.upstream.Release(0)

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
	one.settled(1)
}

func TestTwoInstancesRaceForManyKeys(t *testing.T) {
	t.Parallel()
	s := onPostgres(t)
	one := newGateway(t, s, "wait 1m")
	two := one.beside()
	const keys = 25

	answers := map[string][]func() answer{}
	for i := range keys {
		key := fmt.Sprintf("K%d", i)
		for range 2 {
			answers[key] = append(answers[key], one.later(key, order(i)), two.later(key, order(i)))
		}
	}

	for key, of := range answers {
		for _, answer := range of {
			require.NoError(t, answer().err)
			require.Equal(t, 201, answer().status, "%s", answer().body)
			require.Equal(t, of[0]().id(), answer().id(), key)
		}
	}
	one.settled(keys)
}

func TestOtherInstanceSettlesWhatTheKilledOneLeft(t *testing.T) {
	t.Parallel()
	s := onPostgres(t)
	one := newGateway(t, s, "wait off")
	two := one.beside()

	first := one.later("K1", order(100), fault("hold"))
	one.upstream.awaitHeld(1)
	one.kill()
	require.Error(t, first().err)
	require.Equal(t, problem(409, "in-flight"), two.post("K1", order(100)).problem())
	s.leasesAreOver(t)
	s.awaitState(t, "K1", "unknown")

	require.Equal(t, problem(409, "outcome-unknown"), two.post("K1", order(100)).problem())
	require.Equal(t, 1, one.upstream.executions("K1"))
}

func TestNoRequestHoldsAConnectionWhileTheUpstreamWorks(t *testing.T) {
	t.Parallel()
	s := postgresStore(t, pgtest.New(t), nil, "max_conns 2")
	g := newGateway(t, s)
	const n = 200

	g.upstream.arm("delay:300ms", -1)
	var answers []func() answer
	for i := range n {
		answers = append(answers, g.later(fmt.Sprintf("K%d", i), order(i)))
	}

	for _, answer := range answers {
		answer().first(201)
		require.Empty(t, answer().header.Get("Idempotency-Unsettled"))
	}
	g.settled(n)
}
