package caddymodule_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// config is what a story says of its gateway, in Caddyfile lines. All but the
// exceptional is there already.
type config struct {
	options  string // of the directive; `actor shared` and `operation create-order` unless it says otherwise
	global   string // global options
	before   string // directives that stand outside, such as basic_auth and encode
	after    string // directives that stand between it and the proxy
	proxy    string // options of reverse_proxy
	upstream string // address, if it is not the order service
	sweep    string // sweep_every; 100ms
	grace    string // grace_period; 20s
}

// gateway is a Caddy in front of an upstream, on a store.
type gateway struct {
	t        *testing.T
	config   config
	store    *testStore
	upstream *orders
	story    *story

	dir       string
	addr      string // host:port
	admin     string // host:port
	client    *http.Client
	processes []*process // the last one is the one that runs
}

// newGateway starts a gateway with these options of the directive.
func newGateway(t *testing.T, s *testStore, options ...string) *gateway {
	t.Helper()
	return configure(t, s, config{options: strings.Join(options, "\n")})
}

// configure starts a gateway, with an order service behind it unless the
// configuration names another upstream.
func configure(t *testing.T, s *testStore, c config) *gateway {
	t.Helper()
	g := prepare(t, s, c)
	g.start()
	return g
}

// prepare makes all but the process.
func prepare(t *testing.T, s *testStore, c config) *gateway {
	t.Helper()
	g := &gateway{t: t, config: c, store: s, story: new(story), dir: shortTempDir(t), addr: freeAddr(t), admin: freeAddr(t)}
	if c.upstream == "" {
		g.upstream = newOrders(t)
	}
	g.setUp()
	return g
}

// beside starts another instance of the same gateway: same store, same upstream.
func (g *gateway) beside() *gateway {
	g.t.Helper()
	other := &gateway{t: g.t, config: g.config, store: g.store, upstream: g.upstream, story: g.story, dir: shortTempDir(g.t), addr: freeAddr(g.t), admin: freeAddr(g.t)}
	other.setUp()
	other.start()
	return other
}

func (g *gateway) setUp() {
	g.client = &http.Client{
		// A connection for each request: on one that was used before, Go's client
		// sends a request with an Idempotency-Key again by itself.
		Transport:     &http.Transport{DisableCompression: true, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	g.t.Cleanup(func() {
		if g.t.Failed() {
			g.print(g.t)
		}
	})
	if g.upstream != nil {
		// What is still held would keep the process from ending. Cleanups run last
		// first: this one before that of the process.
		g.t.Cleanup(func() { g.upstream.Release(0) })
	}
}

// start runs the gateway and waits until it serves.
func (g *gateway) start() {
	g.t.Helper()
	g.launch()
	g.process().awaitServing(g.t)
}

// launch runs the gateway.
func (g *gateway) launch() {
	g.t.Helper()
	_, err := program() // built before the story begins
	require.NoError(g.t, err)
	g.story.tell("the gateway starts")
	g.processes = append(g.processes, startProcess(g.t, g.dir, g.caddyfile()))
	if g.upstream != nil {
		g.t.Cleanup(func() { g.upstream.Release(0) })
	}
}

func (g *gateway) process() *process { return g.processes[len(g.processes)-1] }

// kill is kill -9 of the gateway.
func (g *gateway) kill() {
	g.t.Helper()
	g.story.tell("the gateway is killed")
	g.process().kill(g.t)
}

// restart ends the gateway in order and starts it again.
func (g *gateway) restart() {
	g.t.Helper()
	g.story.tell("the gateway is stopped")
	g.process().stop(g.t)
	g.process().awaitExit(g.t)
	g.start()
}

func (g *gateway) caddyfile() string {
	c := g.config
	options := c.options
	if !hasOption(options, "actor") {
		options += "\nactor shared"
	}
	if !hasOption(options, "operation") {
		options += "\noperation create-order"
	}
	upstream := c.upstream
	if upstream == "" {
		upstream = g.upstream.Addr()
	}
	options = strings.ReplaceAll(options, "{upstream}", upstream)
	return fmt.Sprintf(`{
	admin %s
	auto_https off
	persist_config off
	grace_period %s
	log default {
		level DEBUG
		format json
	}
	idempotency {
		%s
		sweep_every %s
	}
	%s
}
http://%s {
	bind 127.0.0.1
	log
	%s
	idempotency {
		%s
	}
	%s
	reverse_proxy %s {
		%s
	}
}
`, g.admin, cmp.Or(c.grace, "20s"), g.store.directive, cmp.Or(c.sweep, "100ms"), c.global, g.addr, c.before, options, c.after, upstream, c.proxy)
}

func hasOption(options, name string) bool {
	for line := range strings.Lines(options) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == name {
			return true
		}
	}
	return false
}

// servers of a gateway: the site and the admin API.
const servers = 2

// reload brings the configuration as it is now into force through the admin API.
func (g *gateway) reload() {
	g.t.Helper()
	g.story.tell("the configuration is reloaded")
	response, err := g.load()
	require.NoError(g.t, err)
	require.Equal(g.t, http.StatusOK, response.StatusCode)
	// Caddy answers before the former server has closed its listener, and on Linux
	// a connection that still waits in that listener's queue then is reset.
	until(g.t, "the former servers accept no more", func() bool {
		return strings.Count(g.ask("/debug/pprof/goroutine?debug=2"), "net/http.(*Server).Serve(") == servers
	})
}

func (g *gateway) load() (*http.Response, error) { return g.loadText(g.caddyfile()) }

func (g *gateway) loadText(caddyfile string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, "http://"+g.admin+"/load", strings.NewReader(caddyfile))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "text/caddyfile")
	r.Header.Set("Cache-Control", "must-revalidate") // also if nothing has changed
	response, err := g.client.Do(r)
	if err != nil {
		return nil, err
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return response, response.Body.Close()
}

// metric is the value of a sample, such as
// `caddy_idempotency_requests_total{operation="create-order",outcome="first"}`; 0 if
// there is none.
func (g *gateway) metric(sample string) float64 {
	g.t.Helper()
	for line := range strings.Lines(g.metrics()) {
		if value, ok := strings.CutPrefix(line, sample+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			require.NoError(g.t, err)
			return n
		}
	}
	return 0
}

// counted is how many requests had the outcome.
func (g *gateway) counted(outcome string) int {
	g.t.Helper()
	return int(g.metric(fmt.Sprintf(`caddy_idempotency_requests_total{operation="create-order",outcome=%q}`, outcome)))
}

// awaitCounted waits for it: a request is counted just after its answer is sent.
func (g *gateway) awaitCounted(outcome string, n int) {
	g.t.Helper()
	until(g.t, fmt.Sprintf("%d requests are counted as %s", n, outcome), func() bool { return g.counted(outcome) == n })
}

func (g *gateway) metrics() string {
	g.t.Helper()
	return g.ask("/metrics")
}

// ask the admin API, again if a reload has just taken its server away.
func (g *gateway) ask(path string) string {
	g.t.Helper()
	var text bytes.Buffer
	until(g.t, "the admin API answers", func() bool {
		response, err := g.client.Get("http://" + g.admin + path)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		text.Reset()
		_, err = text.ReadFrom(response.Body)
		return err == nil
	})
	return text.String()
}

// settled checks the end of a story: so many executions, orders and completed
// records, to the row.
func (g *gateway) settled(n int) {
	g.t.Helper()
	stats := g.upstream.Stats()
	completed := 0
	for _, r := range g.store.records(g.t) {
		if r.State == "completed" {
			completed++
		}
	}
	require.Equal(g.t, [3]int{n, n, n}, [3]int{stats.Executions, stats.Orders, completed}, "executions, orders, completed records")
}

// storeCalls of a kind that the gateway has made.
func (g *gateway) storeCalls(kind string) int {
	g.t.Helper()
	return int(g.metric(fmt.Sprintf(`caddy_idempotency_store_call_duration_seconds_count{kind=%q,result="ok"}`, kind)))
}

// awaitClaims waits until so many requests have competed.
func (g *gateway) awaitClaims(n int) {
	g.t.Helper()
	until(g.t, fmt.Sprintf("%d requests have claimed", n), func() bool { return g.storeCalls("claim") >= n })
}

// shortTempDir is a directory whose name does not grow with the test's.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "idempotency-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// nextPort counts below the ports that systems hand out by themselves. A port that
// the system chose could be given away between here and Caddy's start, and Caddy
// shares ports (SO_REUSEPORT): two gateways would serve each other's requests.
var nextPort = func() *atomic.Int32 {
	var next atomic.Int32
	next.Store(int32(15000 + rand.N(14000)))
	return &next
}()

func freeAddr(t *testing.T) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", nextPort.Add(1))
		if listener, err := net.Listen("tcp", addr); err == nil {
			require.NoError(t, listener.Close())
			return addr
		}
	}
	require.FailNow(t, "no port is free")
	return ""
}
