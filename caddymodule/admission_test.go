package caddymodule_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

func TestKeyIsJudgedBeforeTheBodyIsAskedFor(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t))
	head := fmt.Sprintf("POST /orders HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\nConnection: close\r\n", g.addr, len(order(100)))

	refused := g.raw(head + "Idempotency-Key: a;b\r\n\r\n") // and no body: it is not asked for
	require.True(t, strings.HasPrefix(refused, "HTTP/1.1 400 "), refused)
	require.NotContains(t, refused, "100 Continue")

	taken := g.raw(head + "Content-Type: application/json\r\nIdempotency-Key: K1\r\n\r\n" + order(100))
	require.True(t, strings.HasPrefix(taken, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 "), taken)
	g.settled(1)
}

// users are two callers whom Caddy authenticates.
func users(t *testing.T, names ...string) string {
	t.Helper()
	lines := "basic_auth {\n"
	for _, name := range names {
		hash, err := bcrypt.GenerateFromPassword([]byte("secret-of-"+name), bcrypt.MinCost)
		require.NoError(t, err)
		lines += fmt.Sprintf("%s %s\n", name, hash)
	}
	return lines + "}"
}

func TestEachCallerHasKeysOfItsOwn(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{before: users(t, "ann", "bob"), options: "actor {http.auth.user.id}"})

		ann := g.post("K1", order(100), user("ann"))
		bob := g.post("K1", order(200), user("bob"))
		ann.first(201)
		bob.first(201)
		require.NotEqual(t, ann.id(), bob.id())

		g.post("K1", order(100), user("ann")).replays(ann)
		g.post("K1", order(200), user("bob")).replays(bob)
		g.settled(2)
	})
}

func TestCallerIsAuthenticatedBeforeEveryReplay(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{before: users(t, "ann"), options: "actor {http.auth.user.id}"})
		first := g.post("K1", order(100), user("ann"))
		first.first(201)

		for name, stranger := range map[string]with{
			"nobody":         header("X-Nobody", "1"),
			"wrong password": func(r *http.Request) { r.SetBasicAuth("ann", "guess") },
		} {
			a := g.post("K1", order(100), stranger)
			require.Equal(t, 401, a.status, name)
			require.NotContains(t, string(a.body), first.id(), name)
			require.Empty(t, a.header.Get("Idempotency-Replayed"), name)
		}
		g.settled(1)
	})
}

func TestCallerOfWhomNothingIsKnownIsRefused(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]string{
		"actor":               "actor {http.auth.user.id}",
		"part of it":          "actor user-{http.auth.user.id}",
		"tenant":              "actor shared\ntenant {http.request.header.X-Tenant}",
		"operation":           "actor shared\noperation {http.request.header.X-Operation}",
		"not a placeholder":   "actor {no.such.thing}",
		"white space instead": "actor {http.request.header.X-Blank}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, onSQLite(t), options)

			refused := g.post("K1", order(100), header("X-Blank", "  "))

			require.Equal(t, problem(403, "caller-unidentified"), refused.problem())
			require.False(t, *refused.details().Retryable)
			require.Empty(t, g.store.records(t))
			require.Equal(t, 0, g.upstream.Stats().Executions)
		})
	}
}

func TestTenantAndOperationAreScopesToo(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "tenant {http.request.header.X-Tenant}", "operation {http.request.header.X-Operation}")
		scope := func(tenant, operation string) answer {
			return g.post("K1", order(100), header("X-Tenant", tenant), header("X-Operation", operation))
		}

		scope("acme", "create").first(201)
		scope("globex", "create").first(201)
		scope("acme", "refund").first(201)
		scope("acmec", "reate").first(201) // the parts never run into each other
		require.True(t, scope("acme", "create").isReplay())
		g.settled(4)
	})
}

func TestBodyOverTheLimitIsRefusedWhetherItsLengthIsToldOrNot(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "max_request_body 1KiB")

		require.Equal(t, problem(413, "body-too-large"), g.post("K1", large(1025)).problem())
		require.Equal(t, problem(413, "body-too-large"), g.post("K1", large(1025), unsized()).problem())
		require.Empty(t, s.records(t))
		require.Equal(t, 0, g.upstream.executions("K1"))

		first := g.post("K1", large(1024))
		first.first(201)
		g.post("K1", large(1024), unsized()).replays(first)
		g.settled(1)
	})
}

func TestBodyThatCannotBeUnderstoodLeavesNoRecord(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		for name, body := range map[string]string{
			"cut off":         `{"amount":`,
			"trailing data":   `{"amount":1} {}`,
			"duplicate names": `{"amount":1,"amount":2}`,
			"not UTF-8":       "{\"item\":\"\xff\"}",
			"lone surrogate":  `{"item":"\ud800"}`,
		} {
			require.Equal(t, problem(400, "body-invalid"), g.post("K1", body).problem(), name)
		}
		require.Empty(t, s.records(t))
		require.Equal(t, 0, g.upstream.executions("K1"))

		g.post("K1", order(100)).first(201)
		g.settled(1)
	})
}

func TestClientThatBreaksOffItsBodyLeavesNoRecord(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t))

	whole := g.rawOrder("Idempotency-Key: K1", "X-Client-Reference: K1")
	answer := g.rawAndNoMore(whole[:len(whole)-5])
	require.NotContains(t, answer, " 201 ")
	require.Empty(t, g.store.records(t))

	g.post("K1", order(100)).first(201)
	g.settled(1)
}

func TestMethodsThatAreNotGuardedPass(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "methods PATCH")

		g.post("K1", order(100)).first(201)
		g.post("K1", order(100)).first(201)
		require.Equal(t, 2, g.upstream.executions("K1"))
		require.Empty(t, s.records(t))

		change := func() answer { return g.post("K2", `{"status":"paid"}`, method("PATCH"), path("/orders/ord-1")) }
		first := change()
		first.first(200)
		change().replays(first)
		require.Equal(t, 1, g.upstream.executions("K2"))
	})
}

func TestReadsPassWithAndWithoutAKey(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t))
	first := g.post("K1", order(100))

	for _, key := range []string{"", "K1", "a;b"} {
		read := g.post(key, "", method("GET"), path("/orders/ord-1"))
		read.first(200)
		require.Equal(t, first.id(), read.id())
	}
}

func TestUpgradePasses(t *testing.T) {
	t.Parallel()
	upstream := newRawUpstream(t, func(c *rawConn) {
		c.read()
		c.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
	})
	g := configure(t, onSQLite(t), config{upstream: upstream.addr})

	answer := g.raw(fmt.Sprintf("GET /feed HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", g.addr))

	require.True(t, strings.HasPrefix(answer, "HTTP/1.1 101 "), answer)
	require.True(t, strings.HasSuffix(answer, "hello"), answer)
	require.Empty(t, g.store.records(t))
}

func TestWriteThatOffersAnUpgradeIsAWriteAllTheSame(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		upstream := newRawUpstream(t, func(c *rawConn) {
			c.read()
			c.say("HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nmade")
		})
		g := configure(t, s, config{upstream: upstream.addr})
		offer := []with{header("Connection", "Upgrade, HTTP2-Settings"), header("Upgrade", "h2c"), header("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA")}

		first := g.post("K1", order(100), offer...)
		first.first(201)
		g.post("K1", order(100), offer...).replays(first)
		require.Equal(t, 1, upstream.received("K1"))
		require.Empty(t, upstream.last(t).Header.Get("Upgrade"))
	})
}

func TestIncrementalRequestIsRefusedAsCaddyDoesWhenItMustBuffer(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t))

	require.Equal(t, 501, g.post("K1", order(100), header("Incremental", "?1")).status)
	require.Empty(t, g.store.records(t))
	require.Equal(t, 0, g.upstream.executions("K1"))
}

func TestFormsAndOtherTypesAreProtectedToo(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		form := header("Content-Type", "application/x-www-form-urlencoded")
		text := header("Content-Type", "text/plain")

		first := g.post("K1", "item=bolt&amount=100", form)
		first.first(201)
		g.post("K1", "amount=100&item=%62olt", form).replays(first)
		require.Equal(t, problem(422, "key-reused"), g.post("K1", "item=bolt&amount=200", form).problem())

		plain := g.post("K2", "100 bolts", text)
		plain.first(201)
		g.post("K2", "100 bolts", text).replays(plain)
		require.Equal(t, problem(422, "key-reused"), g.post("K2", "100  bolts", text).problem())
		g.settled(2)
	})
}

// A proxy that ran before, to ask whether the caller may, is no evidence of what
// the proxy after did.
func TestForwardAuthBeforeIsNotTakenForTheProxyAfter(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		authority := newRawUpstream(t, func(c *rawConn) {
			for c.read() != nil {
				c.say("HTTP/1.1 200 OK\r\nX-User: ann\r\nContent-Length: 0\r\n\r\n")
			}
		})
		g := configure(t, s, config{
			before:  "forward_auth " + authority.addr + " {\nuri /check\ncopy_headers X-User\n}",
			options: "actor {http.request.header.X-User}",
			proxy:   "fail_duration 1h",
		})

		lost := g.post("K1", order(100), fault("vanish"))
		require.Equal(t, problem(502, "outcome-unknown"), lost.problem())
		require.Equal(t, "ann", s.record(t, "K1").Actor)

		g.upstream.down()
		g.post("K2", order(100))
		g.post("K2", order(100)).first(503)
		require.Equal(t, "", s.state(t, "K2"), "nothing was sent")
	})
}
