package caddymodule_test

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rawOrder is a request with these header lines, byte for byte.
func (g *gateway) rawOrder(lines ...string) string {
	body := order(100)
	head := fmt.Sprintf("POST /orders HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n", g.addr, len(body))
	for _, line := range lines {
		head += line + "\r\n"
	}
	return head + "\r\n" + body
}

func TestKeyThatIsNotOneIsRefusedAndNothingIsRecorded(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t))
	for name, lines := range map[string][]string{
		"key-missing": {"X-Other: 1"},
		"empty":       {"Idempotency-Key:"},
		"spaces":      {"Idempotency-Key:   "},
		"empty text":  {`Idempotency-Key: ""`},
		"too long":    {"Idempotency-Key: " + strings.Repeat("k", 256)},
		"inner space": {"Idempotency-Key: a b"},
		"list":        {"Idempotency-Key: a,b"},
		"parameter":   {"Idempotency-Key: a;b=1"},
		"parameters":  {`Idempotency-Key: "a";b=1`},
		"not closed":  {`Idempotency-Key: "a`},
		"goes on":     {`Idempotency-Key: "a"b`},
		"escape":      {`Idempotency-Key: "a\b"`},
		"quote":       {`Idempotency-Key: a"b`},
		"not ASCII":   {"Idempotency-Key: caf\xc3\xa9"},
		"in quotes":   {"Idempotency-Key: \"caf\xc3\xa9\""},
		"two lines":   {"Idempotency-Key: a", "Idempotency-Key: b"},
		"twice":       {"Idempotency-Key: a", "Idempotency-Key: a"},
		"two cases":   {"Idempotency-Key: a", "idempotency-key: a"},
	} {
		slug := "key-invalid"
		if name == "key-missing" {
			slug = name
		}
		answer := g.raw(g.rawOrder(lines...))
		require.True(t, strings.HasPrefix(answer, "HTTP/1.1 400 "), "%s: %s", name, answer)
		require.Contains(t, answer, "#"+slug+`"`, name)
	}
	require.Empty(t, g.store.records(t))
	require.Equal(t, 0, g.upstream.Stats().Executions)
}

func TestKeysThatAreAccepted(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t))
	keys := []string{
		strings.Repeat("k", 255), `"` + strings.Repeat("q", 255) + `"`, `"a b, c; d"`, `"say \"hi\" \\"`,
		"8e03978e-40d5-43e8-bc93-6894a57f9324", ":MDEy:", "?1", "12.5", "*token/x",
	}
	for _, key := range keys {
		first := g.post(key, order(100))
		first.first(201)
		g.post(key, order(100)).replays(first)
	}
	require.Len(t, g.store.records(t), len(keys))
	require.Equal(t, `say "hi" \`, g.store.record(t, `say "hi" \`).Key)
}

func TestQuotedAndBareAreTheSameKey(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		first := g.post("K1", order(100))
		g.post(`"K1"`, order(100)).replays(first)
		g.settled(1)
	})
}

func TestCaseOfAKeyMatters(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		g.post("K1", order(100)).first(201)
		g.post("k1", order(100)).first(201)
		g.settled(2)
	})
}

func TestStrictRouteTakesQuotedKeysAlone(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t), "key strict")

	require.Equal(t, problem(400, "key-invalid"), g.post("K1", order(100)).problem())
	g.post(`"K1"`, order(100)).first(201)
	g.settled(1)
}

func TestKeyComesInAnotherHeaderIfTheRouteSaysSo(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t), "key header X-Request-Token", "max_key_length 8")
	token := func(value string) with { return header("X-Request-Token", value) }

	require.Equal(t, problem(400, "key-missing"), g.post("K1", order(100)).problem())
	require.Equal(t, problem(400, "key-invalid"), g.post("", order(100), token("123456789")).problem())
	first := g.post("", order(100), token("12345678"))
	first.first(201)
	g.post("", order(100), token("12345678")).replays(first)
	g.settled(1)
}

func TestKeyComesInTheBodyIfTheRouteSaysSo(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "key body meta.key")
		body := func(key string, amount int) string {
			return fmt.Sprintf(`{"amount":%d,"meta":{"key":%s}}`, amount, key)
		}

		first := g.post("", body(`"K1"`, 1))
		first.first(201)
		g.post("", body(`"K1"`, 1)).replays(first)
		require.Equal(t, problem(422, "key-reused"), g.post("", body(`"K1"`, 2)).problem())
		require.Equal(t, problem(400, "key-missing"), g.post("K1", `{"amount":1}`).problem())
		require.Equal(t, problem(400, "key-missing"), g.post("", body("null", 1)).problem())
		require.Equal(t, problem(400, "key-invalid"), g.post("", body("17", 1)).problem())
		require.Equal(t, problem(400, "key-invalid"), g.post("", body(`""`, 1)).problem())
		require.Equal(t, problem(400, "key-invalid"), g.post("", body(`"a\u0000"`, 1)).problem())
		require.Equal(t, problem(400, "body-invalid"), g.post("", `{"meta":`).problem())
		g.settled(1)
	})
}

func TestKeyInACodedBodyIsTheKey(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "key body meta.key optional")
		body := `{"amount":1,"meta":{"key":"K1"}}`
		var coded strings.Builder
		z := gzip.NewWriter(&coded)
		_, err := z.Write([]byte(body))
		require.NoError(t, err)
		require.NoError(t, z.Close())
		inGzip := []with{header("Content-Encoding", "gzip"), header("Content-Type", "application/json")}

		first := g.post("", coded.String(), inGzip...)
		g.post("", coded.String(), inGzip...).replays(first)
		g.post("", body).replays(first)

		require.Equal(t, 1, g.upstream.Stats().Executions)
		require.Equal(t, "completed", s.state(t, "K1"))
	})
}

func TestKeyInTheBodyIsNotBypassedByAnotherMediaType(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "key body meta.key optional")

		for _, types := range [][]string{{"text/plain"}, {"application/x-www-form-urlencoded"}, nil} {
			as := func(r *http.Request) { r.Header["Content-Type"] = types }
			require.Equal(t, problem(415, "body-invalid"), g.post("", `{"meta":{"key":"K1"}}`, as).problem(), types)
		}
		require.Empty(t, s.records(t))
		require.Zero(t, g.upstream.Stats().Executions)
		g.post("", "")
		require.Equal(t, 1, g.upstream.Stats().Executions, "an empty body has no key, whatever its type")
	})
}

func TestMissingKeyPassesAndIsCountedWhereItIsOptional(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "key optional")

		g.post("", order(100)).first(201)
		g.post("", order(100)).first(201)
		require.Equal(t, problem(400, "key-invalid"), g.post("a;b", order(100)).problem(), "a wrong one is never ignored")

		require.Equal(t, 2, g.upstream.Stats().Orders)
		require.Empty(t, s.records(t))
		g.awaitCounted("unprotected", 2)
	})
}
