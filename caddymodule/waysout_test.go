package caddymodule_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
)

func requisition(no string, amount int) string {
	return fmt.Sprintf(`{"requisition_no":%q,"item":"bolt","amount":%d}`, no, amount)
}

func TestBusinessKeyIsExecutedOnceWhateverTheIdempotencyKey(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "natural_key requisition_no")

		g.post("K1", requisition("R-1", 100)).first(201)
		require.Equal(t, problem(409, "business-key-taken"), g.post("K2", requisition("R-1", 100)).problem())
		require.Equal(t, problem(400, "body-invalid"), g.post("K3", order(100)).problem(), "there is no business key in it")
		g.post("K4", requisition("R-2", 100)).first(201)

		s.windowsAreOver(t)
		s.awaitState(t, "K1", "expired")
		require.Equal(t, problem(409, "business-key-taken"), g.post("K5", requisition("R-1", 100)).problem(), "a tombstone holds it too")
		require.Equal(t, 2, g.upstream.Stats().Executions)
		require.Equal(t, 4, g.storeCalls("claim"), "that somebody else holds it is no error of the store")
	})
}

func TestBusinessKeyIsNotBypassedByAnotherMediaType(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "natural_key requisition_no")
		for _, option := range []string{"natural_key requisition_no", "natural_key requisition_no {\noptional\n}"} {
			g.config.options = option
			g.reload()

			for n, mediaType := range []string{"text/plain", "application/x-www-form-urlencoded", ""} {
				as := func(r *http.Request) { r.Header["Content-Type"] = []string{mediaType} }
				require.Equal(t, problem(415, "body-invalid"), g.post(fmt.Sprint("K", n), requisition("R-1", 100), as).problem(), mediaType)
			}
			require.Empty(t, s.records(t))
			require.Zero(t, g.upstream.Stats().Executions)
		}
	})
}

func TestRequestMayLackAnOptionalBusinessKey(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "natural_key requisition_no {\noptional\n}")

		g.post("K1", order(100)).first(201)
		g.post("K2", "", header("Content-Type", "application/json"))
		g.post("K3", requisition("R-1", 100)).first(201)
		require.Equal(t, problem(409, "business-key-taken"), g.post("K4", requisition("R-1", 100)).problem())

		require.Equal(t, 1, g.upstream.executions("K1"))
		require.Equal(t, 1, g.upstream.executions("K2"))
	})
}

func TestBusinessKeyClashReplaysToItsOwnActorForTheSameRequest(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{before: users(t, "alice", "bob"), options: `actor {http.auth.user.id}
			natural_key requisition_no {
				on_clash replay
			}`})

		first := g.post("K1", requisition("R-1", 100), user("alice"))
		first.first(201)
		g.post("K2", requisition("R-1", 100), user("alice")).replays(first)
		require.Equal(t, problem(409, "business-key-taken"), g.post("K3", requisition("R-1", 200), user("alice")).problem(), "another request")
		stolen := g.post("K4", requisition("R-1", 100), user("bob"))
		require.Equal(t, problem(409, "business-key-taken"), stolen.problem(), "another actor")
		require.NotContains(t, string(stolen.body), "ord-1")
		g.settled(1)
	})
}

const statusRoute = `idempotency_status /idempotency/* {
	actor     {http.auth.user.id}
	operation create-order
	response
}`

func TestClientCanAskWhatIsKnownOfItsKey(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{
			before: users(t, "alice", "bob") + "\n" + statusRoute, options: "actor {http.auth.user.id}\nupstream_timeout 30s",
		})
		status := func(key, who string, changes ...with) answer {
			return g.post("", "", append(changes, method("GET"), path("/idempotency/"+key), user(who))...)
		}

		require.Equal(t, 404, status("K1", "alice").status)
		require.JSONEq(t, `{"state":"none"}`, string(status("K1", "alice").body))

		first := g.later("K1", order(100), user("alice"), fault("hold"))
		g.upstream.awaitHeld(1)
		require.Contains(t, string(status("K1", "alice").body), `"state":"executing"`)
		g.upstream.Release(0)
		first().first(201)

		known := status("K1", "alice")
		require.Equal(t, 200, known.status)
		require.Contains(t, string(known.body), `"state":"completed"`)
		require.Contains(t, string(known.body), `"original_status":201`)
		require.Contains(t, string(known.body), `"resource":"/orders/ord-1"`)
		require.NotContains(t, string(known.body), `"response"`, "not unless it is asked for")
		asked := status("K1", "alice", query("response=true"))
		require.Contains(t, string(asked.body), base64.StdEncoding.EncodeToString(first().body))
		require.JSONEq(t, `{"state":"none"}`, string(status("K1", "bob").body), "another's key is no key")

		g.post("K2", order(100), user("alice"), fault("vanish"))
		require.Contains(t, string(status("K2", "alice").body), `"state":"unknown"`)
		s.windowsAreOver(t)
		s.awaitState(t, "K1", "expired")
		require.Contains(t, string(status("K1", "alice").body), `"state":"expired"`)
	})
}

func TestRetryOfARequestInFlightIsAcceptedWithAPlaceToAsk(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "wait off", "on_in_flight accepted /idempotency/{idempotency.key}")

		first := g.later(`"K 1"`, order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		again := g.post(`"K 1"`, order(100))
		mismatch := g.post(`"K 1"`, order(200))
		g.upstream.Release(0)

		require.Equal(t, 202, again.status)
		require.Equal(t, "/idempotency/K%201", again.header.Get("Location"))
		require.Contains(t, string(again.body), `"state":"executing"`)
		require.Equal(t, problem(422, "key-reused"), mismatch.problem())
		first().first(201)
	})
}

func TestPlaceToAskIsThatOfTheKeyWhateverIsInIt(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{
			before: users(t, "alice") + "\n" + statusRoute + `
			idempotency_status /ask {
				actor     {http.auth.user.id}
				operation create-order
				key       {http.request.uri.query.key}
			}`,
			options: "actor {http.auth.user.id}",
		})
		g.post("17", order(100), user("alice")).first(201)

		for place, keys := range map[string][]string{
			"/idempotency/{idempotency.key}": {"order/17", "order/", "/", "a%2Fb", "17?x#y", `"17 +"`, "{17}"},
			"/ask?key={idempotency.key}":     {"orders/17", "17+", "17&key=18", `"17 & +"`, "%31%37", "18#17"},
		} {
			g.config.options = "actor {http.auth.user.id}\nwait off\non_in_flight accepted " + place
			g.reload()
			for n, key := range keys {
				first := g.later(key, order(n), user("alice"), fault("hold"))
				g.upstream.awaitHeld(1)
				location := g.post(key, order(n), user("alice")).header.Get("Location")
				asked := g.post("", "", method("GET"), user("alice"), func(r *http.Request) {
					at, err := r.URL.Parse(location)
					require.NoError(t, err)
					r.URL = at
				})
				g.upstream.Release(0)

				require.Contains(t, string(asked.body), `"state":"executing"`, "%s at %s", key, location)
				first().first(201)
			}
		}
	})
}

func TestReplayByReferenceShowsNoBody(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "replay reference")

		g.post("K1", order(100)).first(201)
		again := g.post("K1", order(100))

		require.Equal(t, 201, again.status)
		require.Equal(t, "/orders/ord-1", again.header.Get("Location"))
		require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
		require.Empty(t, again.body)
		require.Nil(t, s.record(t, "K1").Body, "and none is stored")
		g.settled(1)
	})
}

func TestReplayByRefetchAsksWithTheRightsOfWhoeverAsks(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		raw := newRawUpstream(t, func(c *rawConn) {
			for r := c.read(); r != nil; r = c.read() {
				switch {
				case r.Method == "POST":
					c.say("HTTP/1.1 201 Created\r\nLocation: /orders/7?view=full\r\nContent-Length: 5\r\n\r\nfirst")
				case r.Header.Get("X-Rights") == "":
					c.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
				default:
					c.say("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nnow")
				}
			}
		})
		g := configure(t, s, config{upstream: raw.addr, options: "replay refetch"})

		require.Equal(t, "first", string(g.post("K1", order(100)).body))
		require.Nil(t, s.record(t, "K1").Body, "nothing of it is stored")

		again := g.post("K1", order(100), header("X-Rights", "yes"))
		require.Equal(t, 201, again.status)
		require.Equal(t, "now", string(again.body))
		require.Equal(t, "/orders/7?view=full", again.header.Get("Location"))
		require.Equal(t, http.MethodGet, raw.last(t).Method)
		require.Equal(t, "/orders/7?view=full", raw.last(t).RequestURI)
		require.Empty(t, raw.last(t).Header.Values("Content-Type"))

		revoked := g.post("K1", order(100))
		require.Equal(t, 403, revoked.status, "the upstream's own answer")
		require.Equal(t, "no", string(revoked.body))
		require.Equal(t, problem(422, "key-reused"), g.post("K1", order(200), header("X-Rights", "yes")).problem())
	})
}

func TestReplayByRefetchShowsTheBodyWhereTheFirstAnswerHadNone(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		raw := newRawUpstream(t, func(c *rawConn) {
			for r := c.read(); r != nil; r = c.read() {
				if r.Method == "POST" {
					c.say("HTTP/1.1 204 No Content\r\nLocation: /orders/7\r\n\r\n")
				} else {
					c.say("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nnow")
				}
			}
		})
		g := configure(t, s, config{upstream: raw.addr, options: "replay refetch"})

		g.post("K1", order(100)).first(204)
		again := g.post("K1", order(100))

		require.NoError(t, again.err)
		require.Equal(t, 200, again.status)
		require.Equal(t, "now", string(again.body))
		require.True(t, again.isReplay())
	})
}

func TestOnlyADigestOfTheKeyIsStored(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		s.directive += "\nsecret 0123456789abcdef0123456789abcdef"
		g := newGateway(t, s, "store_key digest")

		first := g.post("my-own-key", order(100))
		first.first(201)
		g.post("my-own-key", order(100)).replays(first)
		g.post("My-own-key", order(100)).first(201)

		for _, r := range s.records(t) {
			require.Regexp(t, `^hmac-sha256:[0-9a-f]{64}$`, r.Key)
		}
		g.settled(2)
	})
}

func TestStoredResponsesAreEncryptedAndKeysRotated(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		plain := s.directive
		key := func(fill string) string {
			return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, 32)))
		}
		s.directive = plain + "\nencrypt k1 " + key("a")
		g := newGateway(t, s)

		first := g.post("K1", order(100))
		first.first(201)
		require.NotContains(t, string(s.record(t, "K1").Body), "ord-1")
		require.NotContains(t, string(s.record(t, "K1").Header), "Location")
		g.post("K1", order(100)).replays(first)

		s.directive = plain + "\nencrypt k2 " + key("b") + "\nencrypt k1 " + key("a")
		g.restart()
		g.post("K1", order(100)).replays(first)
		second := g.post("K2", order(100))
		second.first(201)

		s.directive = plain + "\nencrypt k2 " + key("b")
		g.restart()
		g.post("K2", order(100)).replays(second)
		require.Equal(t, problem(503, "store-unavailable"), g.post("K1", order(100)).problem(), "its key is gone")

		// Moved to another record, a ciphertext does not open.
		s.responseIsMoved(t, "K2", "K1")
		require.Equal(t, problem(503, "store-unavailable"), g.post("K1", order(100)).problem())
		g.settled(2)
	})
}

func TestRouteThatFailsOpenSaysSo(t *testing.T) {
	t.Parallel()
	s := onWiredPostgres(t)
	g := newGateway(t, s, "on_store_failure pass")
	g.post("K1", order(100)).first(201)

	s.link.Cut()
	open := g.post("K2", order(100))
	s.link.Restore()

	require.Equal(t, 201, open.status)
	require.Equal(t, "true", open.header.Get("Idempotency-Unprotected"))
	g.awaitCounted("failed_open", 1)
	require.Zero(t, g.upstream.Stats().IdempotencyKeysSeen)
	require.Equal(t, 2, g.upstream.Stats().Orders)
}

func TestRouteFailsClosedUnlessItSaysOtherwise(t *testing.T) {
	t.Parallel()
	s := onWiredPostgres(t)
	g := newGateway(t, s)

	s.link.Cut()
	require.Equal(t, problem(503, "store-unavailable"), g.post("K1", order(100)).problem())
	s.link.Restore()
	require.Zero(t, g.upstream.Stats().Executions)
}

// The database has said that the key is taken, and is gone before it could say more.
func TestRouteThatFailsOpenRefusesAKeyThatIsKnownToBeTaken(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := postgresStore(t, db, pgtest.Wire(t, db.DSN), "timeout 1m", "lock_timeout 1m")
	one := newGateway(t, s, "on_store_failure pass")
	other := one.beside()

	first := one.later("K1", order(100), fault("hold"))
	one.upstream.awaitHeld(1)
	blocker := db.Conn(t)
	_, err := blocker.Exec(t.Context(), `BEGIN; SELECT FROM idempotency_records FOR UPDATE`)
	require.NoError(t, err)
	again := other.later("K1", order(100))
	db.WaitForLockWait(t, 1) // the claim is lost, and wants to know to whom
	s.link.Cut()

	require.Equal(t, problem(503, "store-unavailable"), again().problem())
	require.Equal(t, "true", other.post("K2", order(100)).header.Get("Idempotency-Unprotected"), "a key of which nothing is known")
	_, err = blocker.Exec(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
	s.link.Restore()
	one.upstream.Release(0)
	first().first(201)
	require.Equal(t, 1, one.upstream.executions("K1"))
}

func TestRouteThatFailsOpenRefusesAKeyThatItHasSeenCompleted(t *testing.T) {
	t.Parallel()
	s := onWiredPostgres(t)
	g := newGateway(t, s, "on_store_failure pass")
	first := g.post("K1", order(100))
	first.first(201)

	s.link.Cut()
	require.Equal(t, problem(503, "store-unavailable"), g.post("K1", order(100)).problem())

	s.link.Restore()
	g.post("K1", order(100)).replays(first)
	g.settled(1)
}

func TestRouteThatFailsOpenRefusesAKeyThatItIsExecutingOrHasYetToSettle(t *testing.T) {
	t.Parallel()
	s := onWiredPostgres(t)
	g := newGateway(t, s, "on_store_failure pass")

	answer := g.later("K1", order(100), fault("hold"))
	g.upstream.awaitHeld(1)
	s.link.Cut()
	require.Equal(t, problem(503, "store-unavailable"), g.post("K1", order(100)).problem(), "it is being executed")
	g.upstream.Release(0)
	first := answer()
	require.Equal(t, "true", first.header.Get("Idempotency-Unsettled"))
	require.Equal(t, problem(503, "store-unavailable"), g.post("K1", order(100)).problem(), "its outcome is not stored yet")

	s.link.Restore()
	s.awaitState(t, "K1", "completed")
	g.post("K1", order(100)).replays(first)
	g.settled(1)
}
