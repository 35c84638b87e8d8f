package caddymodule_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	secretA = "\nsecret 0123456789abcdef-a"
	secretB = "\nsecret 0123456789abcdef-b"
)

func TestChangedSecretClosesTheRoutesThatDigestKeys(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		s.directive += secretA
		g := newGateway(t, s, "store_key digest", "on_store_failure pass")
		first := g.post("K1", order(100))
		first.first(201)

		s.directive = strings.Replace(s.directive, secretA, secretB, 1)
		g.restart()
		g.process().awaitLog(t, "routes with store_key digest are closed", "set the former secret again", "DELETE FROM idempotency_settings")
		for _, key := range []string{"K1", "K2"} {
			require.Equal(t, problem(503, "store-unavailable"), g.post(key, order(100)).problem())
		}
		require.Equal(t, 1, g.upstream.executions("K1"))
		require.Zero(t, g.upstream.executions("K2"))

		s.directive = strings.Replace(s.directive, secretB, secretA, 1)
		g.restart()
		g.post("K1", order(100)).replays(first)
		g.settled(1)
	})
}

func TestLostSecretIsGivenUpByDeletingItsCheckValue(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		s.directive += secretA
		g := newGateway(t, s, "store_key digest")
		g.post("K1", order(100)).first(201)
		s.directive = strings.Replace(s.directive, secretA, secretB, 1)
		g.reload()
		require.Equal(t, problem(503, "store-unavailable"), g.post("K2", order(100)).problem())

		s.exec(t, `DELETE FROM idempotency_settings WHERE name = 'secret'`)

		second := g.post("K2", order(100))
		second.first(201)
		g.post("K2", order(100)).replays(second)
		g.settled(2)
	})
}

func TestRoutesThatDigestNoKeysDoNotDependOnTheSecret(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		s.directive += secretA
		g := newGateway(t, s)
		first := g.post("K1", order(100))
		first.first(201)

		s.directive = strings.Replace(s.directive, secretA, secretB, 1)
		g.restart()

		g.post("K1", order(100)).replays(first)
		g.settled(1)
	})
}
