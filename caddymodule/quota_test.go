package caddymodule_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// newKeysQuota has a window that no story sees the end of, unless it makes it so.
func newKeysQuota(of string, n int) string {
	return fmt.Sprintf("quota %s {\nmax_new_keys %d/366d\n}", of, n)
}

func executingQuota(of string, n int) string {
	return fmt.Sprintf("quota %s {\nmax_executing %d\n}", of, n)
}

// quotaWindowsAreOver makes it so.
func (s *testStore) quotaWindowsAreOver(t *testing.T) {
	t.Helper()
	s.exec(t, `UPDATE idempotency_quotas SET window_end = `+s.past)
}

// exceedsQuota checks that the answer is the refusal of a quota, and returns its
// Retry-After.
func (a answer) exceedsQuota() int {
	a.t.Helper()
	require.Equal(a.t, problem(429, "quota-exceeded"), a.problem())
	require.True(a.t, *a.details().Retryable)
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(a.t, err)
	return seconds
}

func TestNewKeyBeyondTheQuotaIsRefusedUntilTheWindowEnds(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, newKeysQuota("actor", 2))
		first := g.post("K1", order(100))
		first.first(201)
		g.post("K2", order(200)).first(201)

		refused := g.post("K3", order(300))
		seconds := refused.exceedsQuota()
		require.Positive(t, seconds)
		require.LessOrEqual(t, seconds, 366*24*60*60)
		require.Equal(t, "This caller may send 2 new keys in 366d.", refused.details().Detail)
		g.post("K1", order(100)).replays(first)
		require.Equal(t, problem(422, "key-reused"), g.post("K2", order(100)).problem())
		require.Empty(t, s.state(t, "K3"), "no record is left")
		g.awaitCounted("quota_exceeded", 1)

		s.quotaWindowsAreOver(t)
		g.post("K3", order(300)).first(201)
		g.settled(3)
	})
}

func TestRequestBeyondThoseExecutingIsRefusedUntilOneEnds(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, executingQuota("actor", 1), "wait off")
		first := g.later("K1", order(100), fault("hold"))
		g.upstream.awaitHeld(1)

		require.Equal(t, 1, g.post("K2", order(200)).exceedsQuota())
		require.Equal(t, problem(409, "in-flight"), g.post("K1", order(100)).problem(), "a retry is not refused")

		g.upstream.Release(0)
		first().first(201)
		g.post("K2", order(200)).first(201)
		g.post("K1", order(100)).replays(first())
		g.settled(2)
	})
}

func TestQuotasOfActorAndTenantAreCountedApart(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{before: users(t, "alice", "bob"), options: "actor {http.auth.user.id}\n" +
			newKeysQuota("actor", 2) + "\n" + newKeysQuota("tenant", 3)})

		g.post("K1", order(1), user("alice")).first(201)
		g.post("K2", order(2), user("alice")).first(201)
		g.post("K3", order(3), user("alice")).exceedsQuota()
		g.post("K1", order(1), user("bob")).first(201)
		of := g.post("K2", order(2), user("bob"))
		of.exceedsQuota()
		require.Contains(t, of.details().Detail, "This tenant")
		g.settled(3)
	})
}

func TestReleasedKeyHasBeenUsedAllTheSame(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, newKeysQuota("actor", 2), "on_status 503 release")

		require.Equal(t, 503, g.post("K1", order(100), fault("status:503")).status)
		require.Empty(t, s.state(t, "K1"))
		g.post("K1", order(100)).first(201)
		g.post("K2", order(100)).exceedsQuota()
	})
}

func TestRequestOfAKilledGatewayIsExecutingUntilItsLeaseIsOver(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, executingQuota("tenant", 1))
		first := g.later("K1", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		g.kill()
		require.Error(t, first().err)
		g.start()

		g.post("K2", order(200)).exceedsQuota()
		s.leasesAreOver(t)
		s.awaitState(t, "K1", "unknown")
		g.post("K2", order(200)).first(201)
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
	})
}

func TestQuotasHoldForTwoInstancesTogether(t *testing.T) {
	t.Parallel()
	s := onPostgres(t)
	one := newGateway(t, s, newKeysQuota("actor", 7))
	two := one.beside()

	var answers []func() answer
	for n := range 20 {
		g := []*gateway{one, two}[n%2]
		answers = append(answers, g.later(fmt.Sprint("K", n), order(n)))
	}

	executed := 0
	for _, answer := range answers {
		if a := answer(); a.status == 201 {
			executed++
		} else {
			a.exceedsQuota()
		}
	}
	require.Equal(t, 7, executed)
	one.settled(7)
}
