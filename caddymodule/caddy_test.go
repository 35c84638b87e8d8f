package caddymodule_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// What Caddy itself does around the handler.

func TestPathsThatAreRewrittenToOneAreStillTwoRequests(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{before: "rewrite * /orders"})

		first := g.post("K1", order(100), path("/shops/1/orders"))
		first.first(201)
		g.post("K1", order(100), path("/shops/1/orders")).replays(first)
		require.Equal(t, problem(422, "key-reused"), g.post("K1", order(100), path("/shops/2/orders")).problem())
		g.settled(1)
	})
}

func TestStoriesAreTheSameOverHTTP2(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{global: "servers {\nprotocols h1 h2c\n}", options: "max_response_body 64KiB"})
		g.speakHTTP2()

		first := g.post("K1", order(100), fault("hints, repeat"))
		first.first(201)
		require.Equal(t, []int{103}, first.early)
		again := g.post("K1", order(100))
		again.replays(first)
		require.Equal(t, first.shown(), again.shown())

		hangUp := g.hangUp("K2", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		hangUp()
		g.upstream.Release(0)
		s.awaitState(t, "K2", "completed")
		require.True(t, g.post("K2", order(100)).isReplay())

		whole := g.post("K3", order(100), fault("huge:300000"))
		whole.first(201)
		require.Len(t, whole.body, 300000)
		require.Equal(t, problem(409, "response-not-retained"), g.post("K3", order(100)).problem())

		broken := g.post("K4", order(100), fault("huge:300000, break"))
		require.Error(t, broken.err)
		require.Equal(t, problem(409, "response-not-retained"), g.post("K4", order(100)).problem())
		g.settled(4)
	})
}

// speakHTTP2 makes the client use one HTTP/2 connection, without TLS.
func (g *gateway) speakHTTP2() {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{DisableCompression: true, Protocols: protocols}
	g.t.Cleanup(transport.CloseIdleConnections)
	g.client.Transport = transport
}

func TestProxyThatMaySendAWriteTwiceIsWarnedOf(t *testing.T) {
	t.Parallel()
	g := configure(t, onSQLite(t), config{proxy: "lb_try_duration 1s\nlb_retry_match {\nmethod POST\n}"})

	g.process().awaitLog(t, `"level":"warn"`, "lb_retry_match")
}

func TestHandleErrorsDoesNotHideThatAKeyIsOpen(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := prepare(t, s, config{before: "handle_errors {\nrespond \"sorry\" 502\n}"})
		g.upstream.down()
		g.start()

		first := g.post("K1", order(100))
		first.first(502)
		require.Equal(t, "sorry", string(first.body))
		require.Empty(t, s.records(t))

		g.upstream.up()
		g.post("K1", order(100)).first(201)
		g.settled(1)
	})
}
