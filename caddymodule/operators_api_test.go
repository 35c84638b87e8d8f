package caddymodule_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRequestOfAnOperatorThatMakesNoSenseSaysWhatToWrite(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	g := newGateway(t, s)
	s.hasUnknown(t, "K1", 60)
	good := func(changes fields) fields {
		return named("K1", because("seen", fields{"as": "completed", "status": 201})).and(changes)
	}
	for name, c := range map[string]struct {
		path string
		body any
		says string
	}{
		"no JSON":                {"resolve", "as=completed", "cannot be read"},
		"half of JSON":           {"resolve", `{"as":"completed"`, "cannot be read"},
		"two objects":            {"release", `{} {}`, "goes on after"},
		"a misspelt member":      {"resolve", good(fields{"reazon": "x"}), "reazon"},
		"release with an answer": {"release", good(nil), `unknown field "as"`},
		"no actor":               {"resolve", good(fields{"actor": ""}), "actor is missing"},
		"no key":                 {"show", fields{"actor": "a", "operation": "o"}, "key is missing"},
		"a key of NUL":           {"show", named("\x00", nil), "key holds a control character"},
		"no reason":              {"resolve", good(fields{"reason": ""}), "reason is missing"},
		"a blank reason":         {"release", named("K1", because("  ", nil)), "reason is missing"},
		"two lines of reason":    {"resolve", good(fields{"reason": "a\nb"}), "one line"},
		"a long reason":          {"resolve", good(fields{"reason": strings.Repeat("a", 1001)}), "longer than 1000 bytes"},
		"nobody decides":         {"resolve", good(fields{"by": ""}), "by is missing"},
		"no decision":            {"resolve", good(fields{"as": ""}), "write completed or not-executed"},
		"another decision":       {"resolve", good(fields{"as": "done"}), "write completed or not-executed"},
		"no status":              {"resolve", good(fields{"status": 0}), "status 0"},
		"an early status":        {"resolve", good(fields{"status": 103}), "status 103"},
		"a status of 4 digits":   {"resolve", good(fields{"status": 2010}), "status 2010"},
		"a status that is text":  {"resolve", good(fields{"status": "201"}), "status"},
		"not executed, answered": {"resolve", good(fields{"as": "not-executed"}), "has no response"},
		"a body of 204":          {"resolve", good(fields{"status": 204, "body": "{}"}), "no body"},
		"a body of what":         {"resolve", good(fields{"body": "made"}), "content_type is missing"},
		"two bodies":             {"resolve", good(fields{"body": "{}", "body_base64": "e30="}), "leave one"},
		"a body and none":        {"resolve", good(fields{"body": "{}", "without_response": true}), "leave one"},
		"two header lines":       {"resolve", good(fields{"location": "/a\r\nSet-Cookie: b"}), "control character"},
		"a long location":        {"resolve", good(fields{"location": strings.Repeat("a", 3000)}), "2048 bytes"},
		"a window of a moment":   {"resolve", good(fields{"replay_for": "1us"}), "replay_for"},
		"a negative keep":        {"resolve", good(fields{"keep_for": "-1s"}), "keep_for"},
		"a duration of words":    {"resolve", good(fields{"keep_for": "a day"}), "cannot be read"},
		"broken UTF-8":           {"resolve", "{\"body\":\"\xff\"}", "body_base64"},
	} {
		t.Run(name, func(t *testing.T) {
			refused := g.consult("POST", "/idempotency/"+c.path, c.body)
			require.Equal(t, "400 bad-request", refused.told(), "%s", refused.raw)
			require.Contains(t, refused.Error, c.says)
		})
	}
	require.Equal(t, "unknown", s.state(t, "K1"))
	require.Empty(t, g.show("K1", nil).ok().Audit)
}

// and adds fields, or takes others' place.
func (f fields) and(more fields) fields {
	for name, value := range more {
		f[name] = value
	}
	return f
}

func TestListThatMakesNoSenseSaysWhatToWrite(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t))
	for query, says := range map[string]string{
		"state=lost":                  "write one of executing, completed, unknown, expired",
		"older=long":                  "10m",
		"older=-1s":                   "10m",
		"limit=0":                     "1 to 1000",
		"limit=1001":                  "1 to 1000",
		"limit=many":                  "1 to 1000",
		"operations=a":                "operations",
		"state=unknown&state=expired": "write it once",
		"tenant=%00":                  "control character",
		"tenant=%zz":                  "cannot be read",
		"after=AAAA":                  "without it",
		"after=%21":                   "without it",
	} {
		t.Run(query, func(t *testing.T) {
			refused := g.list(query)
			require.Equal(t, "400 bad-request", refused.told())
			require.Contains(t, refused.Error, says)
		})
	}
}

func TestRequestThatTheAdminEndpointDoesNotTake(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	g := newGateway(t, s)
	s.hasUnknown(t, "K1", 60)
	decision := named("K1", because("seen", nil))

	wrongMethod := g.consult("GET", "/idempotency/release", nil)
	require.Equal(t, "405 wrong-method", wrongMethod.told())
	require.Equal(t, "POST", wrongMethod.header.Get("Allow"))
	nowhere := g.consult("GET", "/idempotency/nowhere", nil)
	require.Equal(t, "404 no-such-endpoint", nowhere.told())
	require.Contains(t, nowhere.Error, "POST /idempotency/resolve")
	form := g.consult("POST", "/idempotency/release", decision, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") })
	require.Equal(t, "415 not-json", form.told())
	large := g.consult("POST", "/idempotency/resolve", `{"body":"`+strings.Repeat("a", 17<<20)+`"}`)
	require.Equal(t, "413 too-large", large.told())

	// Caddy's own rules: a page of somebody else's, and a name that was made to point here.
	elsewhere := g.consult("POST", "/idempotency/release", decision, header("Origin", "http://evil.example"))
	require.Equal(t, 403, elsewhere.status)
	rebound := g.consult("POST", "/idempotency/release", decision, func(r *http.Request) { r.Host = "evil.example" })
	require.Equal(t, 403, rebound.status)
	require.Equal(t, "unknown", s.state(t, "K1"))
}

func TestListIsFilteredAndTheOldestComeFirst(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		g.post("K0", order(1))
		s.hasUnknownOf(t, "default", "create-order", "K1", 30)
		s.hasUnknownOf(t, "default", "cancel-order", "K2", 700)
		s.hasUnknownOf(t, "acme", "create-order", "K3", 4000)

		require.Equal(t, []string{"K3", "K2", "K1"}, g.list("").ok().keys())
		require.Equal(t, []string{"K3", "K2"}, g.list("state=unknown&older=10m").ok().keys())
		require.Equal(t, []string{"K3"}, g.list("older=1h").ok().keys())
		require.Equal(t, []string{"K3"}, g.list("tenant=acme").ok().keys())
		require.Equal(t, []string{"K2"}, g.list("operation=cancel-order").ok().keys())
		require.Equal(t, []string{"K0"}, g.list("state=completed").ok().keys())
		require.Empty(t, g.list("state=executing").ok().keys())

		oldest := g.list("limit=1").ok().Records[0]
		require.GreaterOrEqual(t, oldest.Age, 4000)
		require.Less(t, oldest.Age, 4100)
		require.Equal(t, "lease over", oldest.Reason)
		require.Len(t, oldest.KeyDigest, 16)

		stats := g.consult("GET", "/idempotency/stats", nil).ok()
		require.Equal(t, map[string]int{"executing": 0, "completed": 1, "unknown": 3, "expired": 0}, stats.Stats)
		require.GreaterOrEqual(t, stats.OldestUnknown, 4000)
	})
}

var nextLink = regexp.MustCompile(`^</idempotency/records\?(.*)>; rel="next"$`)

func TestPagesShowEachRecordOnce(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		var all []string
		for n := range 7 {
			key := fmt.Sprint("K", n)
			s.hasUnknown(t, key, 1000-n)
			all = append(all, key)
		}

		var got []string
		query, pages := "state=unknown&limit=3", 0
		for query != "" {
			page := g.list(query).ok()
			got = append(got, page.keys()...)
			pages++
			query = ""
			if link := nextLink.FindStringSubmatch(page.header.Get("Link")); link != nil {
				require.Contains(t, link[1], "after="+page.Next)
				query = link[1]
			} else {
				require.Empty(t, page.Next)
			}
		}
		require.Equal(t, all, got)
		require.Equal(t, 3, pages)

		full := g.list("limit=7").ok()
		require.Empty(t, full.Next, "the last page is known to be")
		other := g.list("operation=create-order&after=" + g.list("limit=2").Next)
		require.Equal(t, "400 bad-request", other.told(), "it is a cursor of another list")
	})
}

func TestPagesOfSettledRecords(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		for _, key := range []string{"c", "a", "b"} {
			g.post(key, order(1)).first(201)
		}

		first := g.list("state=completed&limit=2").ok()
		second := g.list("state=completed&limit=2&after=" + first.Next).ok()

		require.Equal(t, []string{"a", "b"}, first.keys())
		require.Equal(t, []string{"c"}, second.keys())
	})
}

func TestKeysAreShownToOperatorsAndNeverLogged(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		const secret = "SECRET-OF-A-CLIENT"
		for n := range 3 {
			s.hasUnknown(t, fmt.Sprint(secret, n), 60)
		}

		page := g.list("limit=1").ok()
		require.Contains(t, page.Records[0].Key, secret)
		g.list("limit=1&after=" + page.Next).ok()
		g.show(secret+"0", nil).ok()
		g.resolve(secret+"0", because("seen", fields{"as": "completed", "status": 201})).ok()
		g.resolve(secret+"0", because("seen", fields{"as": "completed", "status": 201}))
		g.release(secret+"1", because("not there", nil)).ok()
		g.release(secret+"1", because("not there", nil))
		g.commandAbout("release", secret+"2", "--reason", "not there")
		g.commandAbout("show", secret+"2")

		g.process().awaitLog(t, "an operator decided", "olga", "not there", `"done":"released"`)
		g.process().awaitLog(t, "an operator decided", "olga", `"reason":"seen"`, page.Records[0].KeyDigest, `"done":"completed"`)
		require.NotContains(t, strings.Join(g.process().log.all(), "\n"), secret)
	})
}

func TestOperatorIsToldThatTheStoreIsAway(t *testing.T) {
	t.Parallel()
	s := onWiredPostgres(t)
	g := newGateway(t, s)
	s.hasUnknown(t, "K1", 60)
	s.link.Cut()

	away := g.release("K1", because("not there", nil))
	require.Equal(t, "503 store-unavailable", away.told())
	require.NotEmpty(t, away.header.Get("Retry-After"))
	require.Equal(t, "503 store-unavailable", g.list("").told())
	require.Equal(t, 5, g.commandAbout("release", "K1", "--reason", "not there").code)
	require.Equal(t, 5, g.command("ls").code)

	s.link.Restore()
	g.release("K1", because("not there", nil)).ok()
}

func TestOperatorIsToldThatTheModuleIsNotInUse(t *testing.T) {
	t.Parallel()
	g := newGateway(t, onSQLite(t))
	response, err := g.loadText("{\n admin " + g.admin + "\n persist_config off\n}\n")
	require.NoError(t, err)
	require.Equal(t, 200, response.StatusCode)

	require.Equal(t, "404 not-configured", g.list("").told())
	require.Equal(t, 1, g.command("stats").code)

	g.reload()
	g.list("").ok()
}
