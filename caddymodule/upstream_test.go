package caddymodule_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/examples/orders/service"
)

// orders is the order service. What it counted is what happened.
type orders struct {
	*service.Server
	t    *testing.T
	data string
}

func newOrders(t *testing.T) *orders {
	t.Helper()
	o := &orders{t: t, data: filepath.Join(shortTempDir(t), "orders.jsonl")}
	o.open("127.0.0.1:0")
	t.Cleanup(func() { _ = o.Close() })
	return o
}

func (o *orders) open(addr string) {
	o.t.Helper()
	var err error
	o.Server, err = service.Start(addr, service.Config{Data: o.data})
	require.NoError(o.t, err)
}

// down ends the service as kill -9 would.
func (o *orders) down() {
	o.t.Helper()
	_ = o.Close()
	<-o.Dead()
}

// up starts it again where its clients look for it, with what it had on disk.
func (o *orders) up() {
	o.t.Helper()
	o.open(o.Addr())
}

// executions that arrived, of a key.
func (o *orders) executions(key string) int { return o.Stats().ByReference[key] }

// made is how many orders there are of a key.
func (o *orders) made(key string) int { return o.Stats().OrdersByReference[key] }

// arm makes a fault strike requests to come.
func (o *orders) arm(fault string, times int) {
	o.t.Helper()
	require.NoError(o.t, o.Arm(service.Arming{Fault: fault, Times: times}))
}

// awaitHeld waits until n requests are held.
func (o *orders) awaitHeld(n int) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	require.NoError(o.t, o.WaitHeld(ctx, n), "requests held")
}

// await waits until the counts are as wanted.
func (o *orders) await(what string, wanted func(service.Stats) bool) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	stats, err := o.WaitStats(ctx, wanted)
	require.NoError(o.t, err, "%s: %+v", what, stats)
}

// rawUpstream speaks HTTP as no server should. It runs a script for each
// connection, and counts the requests that the scripts read.
type rawUpstream struct {
	addr string

	mu       sync.Mutex
	accepted int
	requests []*http.Request
}

// rawConn is one connection of a gateway.
type rawConn struct {
	*net.TCPConn
	upstream *rawUpstream
	reader   *bufio.Reader
	number   int // of the connection, from 1
}

func newRawUpstream(t *testing.T, script func(c *rawConn)) *rawUpstream {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u := &rawUpstream{addr: listener.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test is over
			}
			u.mu.Lock()
			u.accepted++
			c := &rawConn{TCPConn: conn.(*net.TCPConn), upstream: u, reader: bufio.NewReader(conn), number: u.accepted}
			u.mu.Unlock()
			running.Go(func() {
				defer c.Close()
				script(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return u
}

// read reads a request to its end and counts it; nil if the connection ended.
func (c *rawConn) read() *http.Request {
	r, err := http.ReadRequest(c.reader)
	if err != nil {
		return nil
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil
	}
	c.upstream.mu.Lock()
	defer c.upstream.mu.Unlock()
	c.upstream.requests = append(c.upstream.requests, r)
	return r
}

// say answers with these bytes.
func (c *rawConn) say(text string) { _, _ = io.WriteString(c, text) }

// reset ends the connection as a crashed host does.
func (c *rawConn) reset() {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// received is how many requests arrived whole with this reference.
func (u *rawUpstream) received(key string) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.requests {
		if r.Header.Get("X-Client-Reference") == key {
			n++
		}
	}
	return n
}

// probes that arrived.
func (u *rawUpstream) probes() (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.requests {
		if r.Method == http.MethodGet {
			n++
		}
	}
	return n
}

// connections that were made to it.
func (u *rawUpstream) connections() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.accepted
}

// last is the request that came last.
func (u *rawUpstream) last(t *testing.T) *http.Request {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	require.NotEmpty(t, u.requests)
	return u.requests[len(u.requests)-1]
}
