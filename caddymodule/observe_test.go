package caddymodule_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// logged is one entry of Caddy's log, as JSON.
type logged struct {
	Level, Logger, Msg string
	Status             int
	Outcome            string `json:"idempotency_outcome"`
	KeyDigest          string `json:"idempotency_key_digest"`
	line               string
}

// entries of those loggers.
func (p *process) entries(t *testing.T, logger string) (entries []logged) {
	t.Helper()
	for _, line := range p.log.all() {
		entry := logged{line: line}
		if json.Unmarshal([]byte(line), &entry) == nil && (entry.Logger == logger || strings.HasPrefix(entry.Logger, logger+".")) {
			entries = append(entries, entry)
		}
	}
	return entries
}

func digestOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}

func TestAccessLogSaysWhatBecameOfEachRequest(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		const key = "a-secret-of-the-client"

		g.post(key, order(100)).first(201)
		g.post(key, order(100))
		g.post(key, order(200))
		g.post("", order(100))

		g.process().awaitLog(t, "http.log.access", "key_missing")
		var outcomes []string
		for _, entry := range g.process().entries(t, "http.log.access") {
			outcomes = append(outcomes, entry.Outcome)
			if entry.Outcome == "key_missing" {
				require.Empty(t, entry.KeyDigest)
			} else {
				require.Equal(t, digestOf(key), entry.KeyDigest)
			}
		}
		require.Equal(t, []string{"first", "replayed", "mismatch", "key_missing"}, outcomes)
	})
}

func TestKeyIsNowhereInWhatTheModuleSays(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "upstream_timeout 300ms", "wait off")
		const key = "a-secret-of-the-client"
		mine := func(suffix string) string { return key + suffix }

		g.post(mine("1"), order(100)).first(201)
		g.post(mine("1"), order(100))
		g.post(mine("1"), order(200))
		g.post(mine("2"), order(100), fault("hold"))
		g.post(mine("3"), order(100), fault("status:429"))
		g.post(mine("4"), order(100), fault("status:500"))
		g.post(mine("5;"), order(100))
		s.exec(t, `UPDATE idempotency_records SET state = 'refunded'`)
		g.post(mine("1"), order(100))
		g.process().awaitLog(t, "http.log.access", "store_error")

		loggers := 0
		for _, logger := range []string{"idempotency", "http.handlers.idempotency"} {
			for _, entry := range g.process().entries(t, logger) {
				loggers++
				require.NotContains(t, entry.line, key)
			}
		}
		require.Greater(t, loggers, 5, "it does say something")
		require.NotContains(t, g.metrics(), key)
	})
}

func TestFiltersOfTheOperationsPageLeaveNoKeyInAnyLog(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	filters := regexp.MustCompile(`(?s)format filter \{.*?\n\t\t\}`).Find(page)
	require.NotEmpty(t, filters)
	file := filepath.Join(t.TempDir(), "log")
	g := configure(t, onSQLite(t), config{
		global:  "log filtered {\nlevel DEBUG\noutput file " + file + "\n" + string(filters) + "\n}",
		before:  "idempotency_status /idempotency/* {\nactor shared\noperation create-order\n}",
		options: "wait off\non_in_flight accepted /idempotency/{idempotency.key}",
	})
	const key = "a-secret-of-the-client"
	named := func(r *http.Request) { r.Header.Set("X-Client-Reference", "R-1") } // where this client has the key, too

	first := g.later(key, order(100), named, fault("hold"))
	g.upstream.awaitHeld(1)
	accepted := g.post(key, order(100), named)
	status := g.post("", "", method("GET"), path(accepted.header.Get("Location")))
	g.upstream.Release(0)
	first().first(201)
	g.process().stop(t)
	g.process().awaitExit(t)

	require.Equal(t, []int{202, 200}, []int{accepted.status, status.status})
	log, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(log), `"Location":["/idempotency/-"]`)
	require.Contains(t, string(log), `"uri":"/idempotency/-"`)
	require.NotContains(t, string(log), key)
}

func TestProbeThatFailsDoesNotLogItsURL(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t), "verify GET http://127.0.0.1:1/?ref={idempotency.key} {\nexists 200\n}")
	const key = "a-secret-of-the-client"

	g.post(key, order(100), fault("reset"))
	g.post(key, order(100))

	g.process().awaitLog(t, "outcome is still unknown", "connection refused", digestOf(key))
	for _, entry := range g.process().entries(t, "http.handlers.idempotency") {
		require.NotContains(t, entry.line, key)
	}
}

func TestStateChangesThatAreNotRoutineAreLogged(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		g.post("doubt", order(100), fault("vanish"))
		g.post("open", order(100), fault("status:429"))
		abandoned := g.later("left", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		s.leasesAreOver(t)

		g.process().awaitLog(t, `"level":"warn"`, "outcome unknown", "upstream error", digestOf("doubt"))
		g.process().awaitLog(t, `"level":"info"`, "key released", "status 429", digestOf("open"))
		g.process().awaitLog(t, `"level":"warn"`, "leases are over", `"records":1`)
		g.upstream.Release(0)
		abandoned()
	})
}

func TestMetricsCountEachOutcomeAndGoOnAcrossAReload(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "wait off")

		g.post("K1", order(100))
		g.post("K1", order(100))
		g.post("K1", order(100))
		g.post("K1", order(200))
		g.post("", order(100))
		g.post("a;b", order(100))
		g.post("doubt", order(100), fault("vanish"))
		g.post("doubt", order(100))
		g.post("open", order(100), fault("status:429"))
		g.post("bad", `{`)
		busy := g.later("busy", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		g.post("busy", order(100))
		g.upstream.Release(0)
		busy()
		counts := map[string]int{
			"first": 2, "replayed": 2, "mismatch": 1, "key_missing": 1, "key_invalid": 1, "became_unknown": 1, "unknown": 1,
			"released": 1, "body_invalid": 1, "in_flight": 1,
		}
		for outcome, n := range counts {
			g.awaitCounted(outcome, n)
		}

		g.reload()
		s.windowsAreOver(t)
		g.post("K1", order(100))
		g.post("K2", order(100))

		counts["first"]++
		counts["expired"]++
		for outcome, n := range counts {
			g.awaitCounted(outcome, n)
		}
	})
}

func TestMetricsTimeEveryKindOfStoreCall(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		g.post("K1", order(100)).first(201)
		g.post("doubt", order(100), fault("vanish"))
		g.post("open", order(100), fault("status:429"))

		for _, kind := range []string{"claim", "complete", "mark_unknown", "release", "abandon", "expire", "purge", "stats"} {
			until(t, kind+" is timed", func() bool { return g.storeCalls(kind) > 0 })
		}
	})
}

func TestGaugesShowRecordsByStateAndTheOldestUnknown(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		for _, key := range []string{"one", "two", "three"} {
			g.post(key, order(100)).first(201)
		}
		g.post("doubt", order(100), fault("vanish"))
		s.exec(t, `UPDATE idempotency_records SET unknown_since = `+s.past+` WHERE key = 'doubt'`)

		g.restart() // they are counted at the start, and then every while

		until(t, "the records are counted", func() bool { return g.metric(`caddy_idempotency_records{state="completed"}`) == 3 })
		require.Equal(t, 1.0, g.metric(`caddy_idempotency_records{state="unknown"}`))
		require.Equal(t, 0.0, g.metric(`caddy_idempotency_records{state="executing"}`))
		until(t, "the age is shown", func() bool { return g.metric("caddy_idempotency_oldest_unknown_seconds") >= 1 })
	})
}

func TestNoLabelOfAMetricComesFromAClient(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t), "operation {http.request.header.X-Operation}")

	g.post("K1", order(100), header("X-Operation", "chosen-by-a-client")).first(201)
	until(t, "it is counted", func() bool {
		return strings.Contains(g.metrics(), `caddy_idempotency_requests_total{operation="{http.request.header.X-Operation}",outcome="first"} 1`)
	})
	require.NotContains(t, g.metrics(), "chosen-by-a-client")
}
