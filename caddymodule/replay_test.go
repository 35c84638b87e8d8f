package caddymodule_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// shown are the header lines of an answer, without those that belong to one
// exchange and not to its result.
func (a answer) shown(without ...string) http.Header {
	shown := a.header.Clone()
	for _, name := range append(without, "Date", "Server", "Via", "Idempotency-Replayed", "Connection") {
		shown.Del(name)
	}
	return shown
}

func TestReplayHasTheSameStatusLinesAndBytes(t *testing.T) {
	for _, what := range []string{
		"repeat",                       // header lines of one name
		"binary",                       // bytes that are no text
		"chunked",                      // a length that was not told
		"status:204",                   // no body at all
		"status:304",                   // likewise
		"status:303",                   // a redirect is an answer
		"huge:900000",                  // near the limit
		"header:X-Note=caf\xe9",        // a byte that is not UTF-8
		"header:Content-Type=text/a;b", // a type that nobody would guess
		"status:422",
	} {
		t.Run(what, func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, s *testStore) {
				g := newGateway(t, s)

				first := g.post("K1", order(100), fault(what))
				again := g.post("K1", order(100))

				require.False(t, first.isReplay())
				again.replays(first)
				require.Equal(t, first.shown("Content-Length"), again.shown("Content-Length"))
				if length := first.header.Get("Content-Length"); length != "" {
					require.Equal(t, length, again.header.Get("Content-Length"))
				}
				g.settled(1)
			})
		})
	}
}

func TestRepeatedHeaderLinesStayRepeated(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t))

	g.post("K1", order(100), fault("repeat"))
	again := g.post("K1", order(100))

	require.Equal(t, []string{"one", "two", "one"}, again.header["X-Legacy"])
	require.Equal(t, []string{"</orders>; rel=collection", "</terms>; rel=license"}, again.header["Link"])
}

// What the first client gets and a replay must not show.
var passing = []struct{ name, value string }{
	{"Set-Cookie", "session=s1"}, {"WWW-Authenticate", "Basic realm=a"}, {"X-Request-Id", "r1"}, {"Traceparent", "00-1"},
	{"X-RateLimit-Remaining", "4"}, {"X-RateLimit-Reset", "9"}, {"RateLimit", "4"}, {"Server", "legacy"},
	{"X-B3-TraceId", "b3"},
}

func TestHeadersOfOneExchangeAreNotReplayed(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		faults := "cookies:2, header:X-Kept=k, header:Connection=X-Hop, header:X-Hop=h"
		for _, h := range passing {
			faults += ", header:" + h.name + "=" + h.value
		}

		first := g.post("K1", order(100), fault(faults))
		again := g.post("K1", order(100))

		require.Len(t, first.header["Set-Cookie"], 3, "the first client gets its cookies")
		for _, h := range passing {
			require.Contains(t, first.header.Values(h.name), h.value, h.name)
			require.NotContains(t, again.header.Values(h.name), h.value, h.name)
		}
		require.Equal(t, "k", again.header.Get("X-Kept"))
		require.Empty(t, again.header.Get("X-Hop"), "Connection says that it is for one hop")
		record := s.record(t, "K1")
		require.NotContains(t, string(record.Header), "session", "nor is it in the store")
		require.NotContains(t, string(record.Header), "legacy1")
	})
}

func TestRouteKeepsAndDropsHeadersOfItsOwn(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t), "keep_header X-Request-Id Set-Cookie", "drop_header X-Legacy")

	g.post("K1", order(100), fault("repeat, cookies:2, header:X-Request-Id=r1"))
	again := g.post("K1", order(100))

	require.Equal(t, "r1", again.header.Get("X-Request-Id"))
	require.Len(t, again.header["Set-Cookie"], 2)
	require.Empty(t, again.header["X-Legacy"])
	require.Len(t, again.header["Link"], 2)
}

func TestHeadersOfOuterDirectivesAreThereOnce(t *testing.T) {
	t.Parallel()
	g := configure(t, onSQLite(t), config{before: "header X-Site one\nheader +Link </site>\nheader >X-Late late"})

	first := g.post("K1", order(100), fault("repeat"))
	again := g.post("K1", order(100))

	again.replays(first)
	require.Equal(t, first.shown(), again.shown())
	require.Equal(t, []string{"one"}, again.header["X-Site"])
}

func TestEarlyHintsReachTheFirstClientAndAreNotReplayed(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		first := g.post("K1", order(100), fault("hints"))
		again := g.post("K1", order(100))

		first.first(201)
		require.Equal(t, []int{103}, first.early)
		require.Len(t, first.earlyLink, 1)
		require.Empty(t, first.header["Link"], "the hint's own header is not the answer's")
		again.replays(first)
		require.Empty(t, again.early)
		require.Equal(t, first.shown(), again.shown())
	})
}

func TestTrailerOfAResponseTooLargeToKeepReachesTheFirstClient(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		raw := newRawUpstream(t, func(c *rawConn) {
			c.read()
			c.say("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nTrailer: X-Digest\r\n\r\n")
			c.say("4\r\nmade\r\n4\r\nmore\r\n0\r\nX-Digest: d1\r\nX-Unannounced: u1\r\n\r\n")
		})
		g := configure(t, s, config{upstream: raw.addr, options: "max_response_body 4"})

		first := g.post("K1", order(100))

		require.Equal(t, 201, first.status)
		require.Equal(t, "mademore", string(first.body))
		require.Equal(t, "d1", first.trailer.Get("X-Digest"))
		require.Equal(t, "u1", first.trailer.Get("X-Unannounced"))
		require.Equal(t, problem(409, "response-not-retained"), g.post("K1", order(100)).problem())
	})
}

func TestTrailerReachesTheFirstClient(t *testing.T) {
	t.Parallel()
	upstream := newRawUpstream(t, func(c *rawConn) {
		c.read()
		c.say("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nTrailer: X-Digest\r\n\r\n4\r\nmade\r\n0\r\nX-Digest: d1\r\n\r\n")
	})
	g := configure(t, onSQLite(t), config{upstream: upstream.addr})

	first := g.post("K1", order(100))
	again := g.post("K1", order(100))

	first.first(201)
	require.Equal(t, "d1", first.trailer.Get("X-Digest"))
	again.replays(first)
	require.Equal(t, 1, upstream.received("K1"))
}

func TestUpstreamIsAskedForUncodedBytesWithoutTheKey(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		g.post("K1", order(100), header("Accept-Encoding", "gzip, br"), header("X-Idempotency-Key", "K1")).first(201)

		executed := g.upstream.Executions()[0]
		require.Equal(t, "identity", executed.AcceptEncoding)
		require.False(t, executed.IdempotencyKey)
	})
}

func TestKeyIsForwardedUnderAnotherNameIfTheRouteSaysSo(t *testing.T) {
	t.Parallel()
	upstream := newRawUpstream(t, func(c *rawConn) {
		c.read()
		c.say("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
	})
	g := configure(t, onSQLite(t), config{upstream: upstream.addr, options: "forward_key X-Reference"})

	g.post(`"K1"`, order(100), header("X-Reference", "forged")).first(201)

	require.Equal(t, []string{"K1"}, upstream.last(t).Header["X-Reference"])
	require.Empty(t, upstream.last(t).Header["Idempotency-Key"])
}

func TestEncodeOutsideCompressesForEachClient(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := configure(t, s, config{before: "encode gzip"})
		inGzip := header("Accept-Encoding", "gzip")

		first := g.post("K1", order(100), fault("huge:5000"), inGzip)
		again := g.post("K1", order(100), inGzip)
		plain := g.post("K1", order(100))

		require.Equal(t, "gzip", first.header.Get("Content-Encoding"))
		require.Equal(t, "gzip", again.header.Get("Content-Encoding"))
		require.True(t, again.isReplay())
		require.Empty(t, plain.header.Get("Content-Encoding"))
		require.Len(t, plain.body, 5000)
		require.Equal(t, string(plain.body), gunzip(t, first.body))
		require.Equal(t, string(plain.body), gunzip(t, again.body))
		require.Equal(t, string(plain.body), string(s.record(t, "K1").Body), "what is stored is not coded")
		g.settled(1)
	})
}

func TestClientThatAsksForGzipGetsPlainBytesWithoutEncode(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		inGzip := header("Accept-Encoding", "gzip")

		first := g.post("K1", order(100), fault("gzip-accepted"), inGzip)
		again := g.post("K1", order(100), inGzip)

		first.first(201)
		require.Empty(t, first.header.Get("Content-Encoding"))
		again.replays(first)
	})
}

func TestBytesThatCameCodedAreReplayedToThoseWhoTakeThem(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		inGzip := header("Accept-Encoding", "gzip")

		first := g.post("K1", order(100), fault("gzip"), inGzip) // although it was asked not to
		again := g.post("K1", order(100), inGzip)
		plain := g.post("K1", order(100))

		first.first(201)
		require.Equal(t, "gzip", first.header.Get("Content-Encoding"))
		again.replays(first)
		require.Equal(t, "gzip", again.header.Get("Content-Encoding"))
		require.Contains(t, gunzip(t, again.body), "ord-1")
		require.Equal(t, problem(409, "response-not-retained"), plain.problem())
		require.Equal(t, "/orders/ord-1", plain.details().Resource)
		g.settled(1)
	})
}

func gunzip(t *testing.T, coded []byte) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(coded))
	require.NoError(t, err)
	plain, err := io.ReadAll(z)
	require.NoError(t, err)
	return string(plain)
}

func TestResourceIsWhereTheRouteSaysItIs(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "resource id")

		g.post("K1", order(100)).first(201)
		s.windowsAreOver(t)

		require.Equal(t, "ord-1", g.post("K1", order(100)).details().Resource)
	})
}
