package caddymodule_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// fate is what becomes of a record.
const (
	stored   = "completed"
	released = ""
	doubtful = "unknown"
)

func TestWhatEachStatusMeans(t *testing.T) {
	meaning := map[string][]int{
		stored:   {200, 201, 202, 204, 206, 301, 303, 304, 400, 402, 404, 405, 409, 410, 412, 422, 451, 501, 505},
		released: {401, 403, 407, 408, 425, 429},
		doubtful: {500, 502, 503, 504, 507, 599},
	}
	onEveryStore(t, func(t *testing.T, s *testStore) {
		checkStatuses(t, newGateway(t, s), meaning)
	})
}

func TestOnStatusChangesWhatAStatusMeans(t *testing.T) {
	t.Parallel()
	options := `
		on_status 503 409 release
		on_status 5xx     store
		on_status 4xx     unknown
		on_status 404 429 store`
	checkStatuses(t, newGateway(t, onSQLite(t), options), map[string][]int{
		stored:   {201, 404, 429, 500, 502},
		released: {409, 503},
		doubtful: {400, 401, 422},
	})
}

// checkStatuses lets the upstream answer with each status, and looks at what the
// first client and the retry get.
func checkStatuses(t *testing.T, g *gateway, meaning map[string][]int) {
	t.Helper()
	for state, statuses := range meaning {
		for _, status := range statuses {
			key := fmt.Sprintf("K%d", status)
			first := g.post(key, order(100), fault(fmt.Sprintf("status:%d", status)))
			first.first(status)
			require.Equal(t, state, g.store.state(t, key), "status %d", status)

			again := g.post(key, order(100))
			switch state {
			case stored:
				again.replays(first)
			case released:
				again.first(201)
			case doubtful:
				require.Equal(t, problem(409, "outcome-unknown"), again.problem(), "status %d", status)
				require.Equal(t, status, again.details().OriginalStatus)
			}
		}
	}
}

// The table of refusals: each of them by one request, with what a client may do next.
func TestEachRefusalSaysWhatAClientMayDo(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "wait off", "max_request_body 1KiB", "max_response_body 1KiB", "upstream_timeout 300ms")
		g.post("done", order(100)).first(201)
		g.post("large", order(100), fault("huge:5000")).first(201)
		g.post("doubt", order(100), fault("vanish"))
		g.post("old", order(100)).first(201)
		s.exec(t, fmt.Sprintf(`UPDATE idempotency_records SET replay_until = %s WHERE key = 'old'`, s.past))

		for _, c := range []struct {
			name       string
			send       func() answer
			want       problemAnswer
			retryable  bool
			retryAfter bool
		}{
			{"no key", func() answer { return g.post("", order(100)) }, problem(400, "key-missing"), false, false},
			{"bad key", func() answer { return g.post("a;b", order(100)) }, problem(400, "key-invalid"), false, false},
			{"not JSON", func() answer { return g.post("K1", `{"amount":`) }, problem(400, "body-invalid"), false, false},
			{"unknown coding", func() answer { return g.post("K1", order(100), header("Content-Encoding", "br")) }, problem(415, "body-invalid"), false, false},
			{"large body", func() answer { return g.post("K1", large(2000)) }, problem(413, "body-too-large"), false, false},
			{"other payload", func() answer { return g.post("done", order(200)) }, problem(422, "key-reused"), false, false},
			{"body not kept", func() answer { return g.post("large", order(100)) }, problem(409, "response-not-retained"), false, false},
			{"unknown", func() answer { return g.post("doubt", order(100)) }, problem(409, "outcome-unknown"), true, true},
			{"expired", func() answer { return g.post("old", order(100)) }, problem(410, "response-expired"), false, false},
			{"timeout", func() answer { return g.post("slow", order(100), fault("hold")) }, problem(504, "outcome-unknown"), true, true},
			{"no answer", func() answer { return g.post("lost", order(100), fault("vanish")) }, problem(502, "outcome-unknown"), true, true},
			{"broken off", func() answer { return g.post("half", order(100), fault("break")) }, problem(502, "response-incomplete"), false, false},
		} {
			a := c.send()
			require.Equal(t, c.want, a.problem(), c.name)
			require.Equal(t, c.retryable, *a.details().Retryable, c.name)
			checkRetryAfter(t, a, c.retryAfter, c.name)
		}

		first := g.later("busy", order(100), fault("hold"))
		g.upstream.awaitHeld(2)
		busy := g.post("busy", order(100))
		require.Equal(t, problem(409, "in-flight"), busy.problem())
		require.True(t, *busy.details().Retryable)
		checkRetryAfter(t, busy, true, "in flight")
		first()
	})
}

func checkRetryAfter(t *testing.T, a answer, wanted bool, name string) {
	t.Helper()
	after := a.header.Get("Retry-After")
	if !wanted {
		require.Empty(t, after, name)
		return
	}
	seconds, err := strconv.Atoi(after)
	require.NoError(t, err, name)
	require.Positive(t, seconds, name)
}

func TestRefusalLinksToTheRoutesOwnPolicy(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t), "policy https://example.com/idempotency")

	require.Equal(t, `<https://example.com/idempotency>; rel="describedby"`, g.post("", order(100)).header.Get("Link"))
}

func TestResponseThatBreaksOffIsCompletedWithoutABody(t *testing.T) {
	for _, how := range []string{"break", "break, chunked"} {
		t.Run(how, func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, s *testStore) {
				g := newGateway(t, s)

				first := g.post("K1", order(100), fault(how))
				again := g.post("K1", order(100))

				location := "/orders/" + g.upstream.Orders()[0].ID
				require.Equal(t, problem(502, "response-incomplete"), first.problem())
				require.Equal(t, 201, first.details().OriginalStatus)
				require.Equal(t, location, first.details().Resource)
				require.Equal(t, problem(409, "response-not-retained"), again.problem())
				require.Equal(t, 201, again.details().OriginalStatus)
				require.Equal(t, location, again.details().Resource)
				g.settled(1)
			})
		})
	}
}

func TestServerErrorThatBreaksOffIsAnUnknownOutcome(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		first := g.post("K1", order(100), fault("status:500, break"))

		require.Equal(t, problem(502, "outcome-unknown"), first.problem())
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
		require.Equal(t, 1, g.upstream.executions("K1"))
	})
}

func TestTimeoutInTheMiddleOfABodyIsCompletedWithoutABody(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "upstream_timeout 300ms")

		first := g.post("K1", order(100), fault("hold-body"))

		require.Equal(t, problem(502, "response-incomplete"), first.problem())
		require.Equal(t, problem(409, "response-not-retained"), g.post("K1", order(100)).problem())
		g.settled(1)
	})
}

func TestResponseTooLargeToKeepReachesTheFirstClientWhole(t *testing.T) {
	for _, how := range []string{"huge:300000", "huge:300000, chunked"} {
		t.Run(how, func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, s *testStore) {
				g := newGateway(t, s, "max_response_body 64KiB")

				first := g.post("K1", order(100), fault(how))
				again := g.post("K1", order(100))

				first.first(201)
				require.Len(t, first.body, 300000)
				require.Equal(t, "ord-1", first.id(), "it is whole JSON")
				require.Equal(t, problem(409, "response-not-retained"), again.problem())
				require.Equal(t, 201, again.details().OriginalStatus)
				require.Equal(t, "/orders/ord-1", again.details().Resource)
				g.settled(1)
			})
		})
	}
}

func TestResponseTooLargeToKeepIsSettledBeforeItStreams(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "max_response_body 64KiB")

		first := g.later("K1", order(100), fault("huge:300000, hold-body"))
		g.upstream.awaitHeld(1)
		s.awaitState(t, "K1", "completed")
		require.Equal(t, problem(409, "response-not-retained"), g.post("K1", order(100)).problem(), "while it streams")
		g.kill()
		require.Error(t, first().err)
		g.start()

		require.Equal(t, problem(409, "response-not-retained"), g.post("K1", order(100)).problem())
		g.settled(1)
	})
}

func TestStreamOutlivesTheUpstreamTimeoutOnceItIsSettled(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	g := newGateway(t, s, "max_response_body 1KiB", "upstream_timeout 500ms", "wait off")

	first := g.later("K1", order(100), fault("huge:300000, hold-body"))
	g.upstream.awaitHeld(1)
	s.awaitState(t, "K1", "completed")
	require.Equal(t, problem(504, "outcome-unknown"), g.post("another", order(100), fault("hold")).problem(), "as long as a timeout")
	g.upstream.Release(0)

	first().first(201)
	require.Len(t, first().body, 300000)
}

func TestLargeResponseThatBreaksOffIsCompletedAndBreaksOff(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "max_response_body 64KiB")

		first := g.post("K1", order(100), fault("huge:300000, break"))

		require.Error(t, first.err, "the client sees that it is not whole")
		require.Equal(t, http.StatusCreated, first.status)
		g.awaitCounted("first", 1)
		g.process().awaitLog(t, "http.log.access", `"idempotency_outcome":"first"`, digestOf("K1"))
		require.Equal(t, problem(409, "response-not-retained"), g.post("K1", order(100)).problem())
		g.settled(1)
	})
}

func TestRetriesDuringTheFirstWaitAndReplay(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "wait 1m")

		first := g.later("K1", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		again := g.later("K1", order(100))
		g.awaitClaims(2)
		g.upstream.Release(0)

		again().replays(first())
		g.awaitCounted("waited", 1)
	})
}

func TestWaitEndsWith409(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "wait 300ms")

		first := g.later("K1", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		require.Equal(t, problem(409, "in-flight"), g.post("K1", order(100)).problem())
		g.upstream.Release(0)

		first().first(201)
		g.settled(1)
	})
}

func TestThoseWhoWaitAreToldThatTheOutcomeIsUnknown(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "wait 1m")

		first := g.later("K1", order(100), fault("hold, vanish"))
		g.upstream.awaitHeld(1)
		again := g.later("K1", order(100))
		g.awaitClaims(2)
		g.upstream.Release(0)

		require.Equal(t, problem(502, "outcome-unknown"), first().problem())
		require.Equal(t, problem(409, "outcome-unknown"), again().problem())
		require.Equal(t, 1, g.upstream.executions("K1"))
	})
}
