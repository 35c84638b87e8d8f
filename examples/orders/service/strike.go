package service

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// This file holds what the faults do. A fault that ends the exchange does so by abort, and does not return.

// delay waits for the time to pass, not for the client: a legacy service does not notice that its client has gone.
func (x *exchange) delay(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.service.alive.Done():
		x.abort()
	}
}

func (x *exchange) hold(none) {
	if err := x.service.gate.hold(x.service.alive); err != nil {
		x.abort()
	}
}

func (x *exchange) die(none) {
	x.service.die()
	x.abort()
}

// reset makes the kernel send RST rather than FIN, which is what a client sees of a crashed host or a cut firewall.
func (x *exchange) reset(none) {
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
	x.abort()
}

func (x *exchange) refuse(status int) {
	x.reply = errorReply(status, "refused by a fault; nothing was committed")
}

func (x *exchange) vanish(none) {
	x.abort()
}

func (x *exchange) answerStatus(status int) {
	x.reply.status = status
	if status >= 400 {
		x.reply.header.Del("Location")
		x.reply.header.Set("Content-Type", "application/json")
		x.reply.setBody(fmt.Appendf(nil, `{"error":"status %d by a fault"}`+"\n", status))
	}
}

func (x *exchange) setHeader(line [2]string) {
	name, value := line[0], line[1]
	switch {
	case value == "":
		x.reply.header.Del(name)
	case http.CanonicalHeaderKey(name) == "Content-Type": // two of them would be no content type at all
		x.reply.header.Set(name, value)
	default:
		x.reply.header.Add(name, value)
	}
}

func (x *exchange) repeatHeaders(none) {
	h := x.reply.header
	for _, value := range []string{"one", "two", "one"} {
		h.Add("X-Legacy", value)
	}
	h.Add("Link", "</orders>; rel=collection")
	h.Add("Link", "</terms>; rel=license")
}

func (x *exchange) setCookies(n int) {
	for i := 1; i <= n; i++ {
		x.reply.header.Add("Set-Cookie", fmt.Sprintf("legacy%d=%d; Path=/; HttpOnly", i, i))
	}
}

func (x *exchange) hint(none) {
	x.reply.hints = true
}

func (x *exchange) binary(none) {
	body := make([]byte, 256)
	for i := range body {
		body[i] = byte(i)
	}
	x.reply.header.Set("Content-Type", "application/octet-stream")
	x.reply.setBody(body)
}

// pad makes the answer so many bytes long and leaves it JSON. It is made while it is sent, so its size costs nothing.
// The padding is digits that count on, so a piece lost or doubled on the way shows.
func (x *exchange) pad(size int64) {
	p := x.reply
	order, err := io.ReadAll(p.body)
	p.setBody(order)
	open, isObject := bytes.CutSuffix(bytes.TrimSpace(order), []byte("}"))
	head, tail := string(open)+`,"padding":"`, "\"}\n"
	missing := size - int64(len(head)+len(tail))
	if err != nil || !isObject || missing < 0 {
		return
	}
	p.body = io.MultiReader(strings.NewReader(head), io.LimitReader(&digits{}, missing), strings.NewReader(tail))
	p.length = size
}

// digits reads 0123456789 over and over.
type digits struct{ at int }

func (d *digits) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte('0' + d.at)
		d.at = (d.at + 1) % 10
	}
	return len(b), nil
}

func (x *exchange) gzip(none) {
	var coded bytes.Buffer
	z := gzip.NewWriter(&coded)
	_, _ = io.Copy(z, x.reply.body) // nothing to fail: from memory to memory
	_ = z.Close()
	x.reply.header.Set("Content-Encoding", "gzip")
	x.reply.setBody(coded.Bytes())
}

func (x *exchange) gzipIfAccepted(none) {
	x.reply.header.Add("Vary", "Accept-Encoding")
	if acceptsGzip(x.r.Header) {
		x.gzip(none{})
	}
}

// acceptsGzip knows weights only as far as a zero means no.
func acceptsGzip(h http.Header) bool {
	for coding := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, weighted := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";q=")
		if strings.EqualFold(name, "gzip") {
			return !weighted || strings.Trim(weight, "0.") != ""
		}
	}
	return false
}

func (x *exchange) chunk(none) {
	x.reply.chunked = true
}

func (x *exchange) breakOff(none) {
	x.reply.halfway = x.abort
}

func (x *exchange) holdBody(none) {
	x.reply.halfway = func() { x.hold(none{}) }
}

func (x *exchange) dribble(d time.Duration) {
	x.reply.pause = func() { x.delay(d) }
}
