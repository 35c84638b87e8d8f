package caddymodule

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

// forward runs the next handlers, in this goroutine and to their end: a client
// that goes away does not stop them, upstream_timeout does. It returns what is
// known afterwards; the response is in the recorder.
func (h *Handler) forward(x *exchange, rec *recorder) (e evidence) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(x.r.Context()))
	defer cancel(nil)
	timeout := time.AfterFunc(time.Duration(h.UpstreamTimeout), func() { cancel(context.DeadlineExceeded) })
	defer timeout.Stop()
	// A response that streams is settled, and takes as long as its client takes.
	rec.streams = func() { timeout.Stop() }

	wire := &wire{}
	body := &countedBody{ReadCloser: newBody(x.body)}
	r := x.r.Clone(protected(wire.watch(ctx)))
	h.prepare(r, x, body)
	proxy := watchProxy(r)

	defer func() {
		if e.panicked = recover(); e.panicked != nil && e.panicked != http.ErrAbortHandler {
			h.logger(x).Error("panic in a handler after this one", zap.Any("panic", e.panicked), zap.ByteString("stack", debug.Stack()))
		}
		e.status, e.whole = rec.status, e.err == nil && e.panicked == nil && rec.whole()
		e.timedOut = timedOut(ctx)
		e.asked = wire.asked.Load() || proxy.chose()
		e.neverSent = !body.touched.Load() && !proxy.answered() && (wire.neverSent() ||
			!wire.asked.Load() && (proxy.neverChose() || errors.Is(e.err, errNested)))
	}()
	e.err = x.next.ServeHTTP(rec, r)
	return e
}

// prepare makes the upstream's request of the client's.
func (h *Handler) prepare(r *http.Request, x *exchange, body *countedBody) {
	r.ContentLength = int64(len(x.body))
	r.TransferEncoding = nil
	r.Trailer = nil
	r.Body = body
	if len(x.body) == 0 {
		r.Body = http.NoBody
	}
	// Go's transport sends a request once more by itself if it can read its body
	// again, or takes a key in the header as leave to do so
	// (net/http/request.go, isReplayable).
	r.GetBody = nil
	r.Header.Del("Idempotency-Key")
	r.Header.Del("X-Idempotency-Key")
	if h.ForwardKey != "" {
		r.Header.Set(h.ForwardKey, x.key)
	}
	r.Header.Del("Expect") // 100 Continue has been sent
	// A server may ignore an offer to upgrade (RFC 9110, section 7.8), and a write
	// that took it up could not be recorded. Java's HttpClient offers h2c with
	// every first request of a connection.
	r.Header.Del("Upgrade")
	r.Header.Del("Http2-Settings")
	// Stored bytes are not coded; the encode directive, which stands outside,
	// compresses for each client.
	r.Header.Set("Accept-Encoding", "identity")
}

// wire watches what the HTTP transport does with the network. The errors of
// Caddy's proxy describe its last attempt alone and are no proof; that a
// connection was asked for and none was ever obtained is one, as far as this
// transport goes.
type wire struct {
	asked, obtained atomic.Bool
}

func (w *wire) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:          func(string) { w.asked.Store(true) },
		GotConn:          func(httptrace.GotConnInfo) { w.obtained.Store(true) },
		WroteHeaderField: func(string, []string) { w.obtained.Store(true) },
		WroteRequest:     func(info httptrace.WroteRequestInfo) { w.obtained.Store(w.obtained.Load() || info.Err == nil) },
	})
}

func (w *wire) neverSent() bool { return w.asked.Load() && !w.obtained.Load() }

// proxyWatch tells what Caddy's proxy notes. If it ran and found no upstream to
// choose, as when all of them are unhealthy, it never asks for a connection, which
// is not the same as a handler of which nothing is known. And an upstream that the
// wire does not see may have answered: FastCGI goes without the HTTP transport, and
// what handles its response may then ask for a connection in vain.
type proxyWatch struct{ repl *caddy.Replacer }

const (
	proxyRan      = "http.reverse_proxy.duration"         // set when the proxy returns
	proxyChose    = "http.reverse_proxy.upstream.address" // set for each upstream that it tries
	proxyAnswered = "http.reverse_proxy.upstream.latency" // set for each answer, whatever the transport
)

func watchProxy(r *http.Request) proxyWatch {
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	// A proxy that ran before this handler, as forward_auth does, has set them too.
	repl.Delete(proxyRan)
	repl.Delete(proxyChose)
	repl.Delete(proxyAnswered)
	return proxyWatch{repl}
}

func (p proxyWatch) chose() bool {
	_, chose := p.repl.Get(proxyChose)
	return chose
}

func (p proxyWatch) neverChose() bool {
	_, ran := p.repl.Get(proxyRan)
	return ran && !p.chose()
}

func (p proxyWatch) answered() bool {
	_, answered := p.repl.Get(proxyAnswered)
	return answered
}

// countedBody notes whether anybody has begun to read the body.
type countedBody struct {
	io.ReadCloser
	touched atomic.Bool
}

func (b *countedBody) Read(p []byte) (int, error) {
	b.touched.Store(true)
	return b.ReadCloser.Read(p)
}
