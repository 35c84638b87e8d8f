package caddymodule_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Which requests a matcher matches shows up with them. The second handler stops the
// request before anything is forwarded, and the key is as it was.
func TestRequestInsideOfTwoHandlersIsStoppedAndItsKeyReleased(t *testing.T) {
	s := onSQLite(t)
	// The harness's own handler lets requests without a key pass, so that a second
	// one may have its use, and is not refused at the start.
	g := configure(t, s, config{options: "key optional", after: `handle /orders/special {
		idempotency {
			actor shared
			operation second
		}
		respond 201
	}`})

	answer := g.post("K1", order(100), path("/orders/special"))

	require.Equal(t, http.StatusInternalServerError, answer.status)
	g.process().awaitLog(t, "two idempotency handlers match this request")
	require.Empty(t, s.records(t))
	require.Equal(t, 0, g.upstream.executions("K1"))

	g.post("K1", order(100)).first(201) // elsewhere, there is one
	g.settled(1)
}

// Of two handlers of which one has no matcher, no request of the other comes
// through, in whichever order they stand.
func TestSecondHandlerBesideOneWithoutMatcherIsRefusedAtTheStart(t *testing.T) {
	const pay = "idempotency /payments {\n actor shared\n operation pay\n }\n"
	for name, c := range map[string]config{
		"after it, for Caddy sorts what has a matcher first": {before: pay},
		"inside of it": {after: "handle /payments {\n" + pay + "}"},
	} {
		t.Run(name, func(t *testing.T) {
			g := prepare(t, onSQLite(t), c)

			g.launch()

			g.process().awaitLog(t, "two idempotency handlers match this request", "create-order", "pay")
			g.process().awaitExit(t)
		})
	}
}

// Handlers whose matchers or methods exclude each other are the usual thing.
func TestHandlersBesideEachOtherAreNotNested(t *testing.T) {
	s := onSQLite(t)
	g := configure(t, s, config{options: "methods POST", after: `idempotency {
		actor shared
		operation change
		methods PATCH
	}`})

	g.post("K1", order(100)).first(201)
	g.settled(1)
}
