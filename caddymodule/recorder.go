package caddymodule

import (
	"bytes"
	"net/http"
	"strconv"
)

// recorder keeps the response of the next handlers until its outcome is durable.
// It hides the client's writer from them, without an Unwrap method, since a Flush
// that reached through would show the client an answer that is not settled yet.
//
// A response over the limit is not kept: settle is called as soon as that is
// known, and the rest streams to the client as it comes.
type recorder struct {
	client  http.ResponseWriter
	limit   int64
	settle  func() // called once, before a response over the limit begins to stream
	streams func() // called once, when it does

	header    http.Header // the next handlers' own
	head      http.Header // as it was when they wrote the status
	status    int         // 0 until then
	declared  int64       // Content-Length; -1 if there is none
	written   int64
	body      bytes.Buffer
	streaming bool
}

func newRecorder(client http.ResponseWriter, limit int64) *recorder {
	return &recorder{client: client, limit: limit, declared: -1, header: client.Header().Clone()}
}

// Header implements http.ResponseWriter.
func (rec *recorder) Header() http.Header { return rec.header }

// WriteHeader implements http.ResponseWriter. Informational responses (1xx) go
// on to the client at once: they say nothing of the outcome.
func (rec *recorder) WriteHeader(status int) {
	if rec.status != 0 {
		return
	}
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		rec.inform(status)
		return
	}
	rec.status = status
	rec.head = rec.header.Clone()
	for _, ours := range []string{HeaderReplayed, HeaderUnsettled, HeaderUnprotected} {
		rec.head.Del(ours) // no upstream can say it
	}
	if n, err := strconv.ParseInt(rec.head.Get("Content-Length"), 10, 64); err == nil {
		rec.declared = n
	}
	switch {
	case noBody(status): // a 304 may declare the length of what it does not send
	case rec.declared > rec.limit:
		rec.stream()
	case rec.declared > 0:
		rec.body.Grow(int(rec.declared))
	}
}

// inform passes an informational response on, with the headers that belong to it
// alone.
func (rec *recorder) inform(status int) {
	before := rec.client.Header().Clone()
	replaceHeader(rec.client.Header(), rec.header)
	rec.client.WriteHeader(status)
	replaceHeader(rec.client.Header(), before)
}

// Write implements http.ResponseWriter.
func (rec *recorder) Write(p []byte) (int, error) {
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	if noBody(rec.status) {
		return 0, http.ErrBodyNotAllowed
	}
	rec.written += int64(len(p))
	if !rec.streaming && rec.written > rec.limit {
		rec.stream()
	}
	if rec.streaming {
		return rec.client.Write(p)
	}
	return rec.body.Write(p)
}

// Flush implements http.Flusher. What is not settled is not flushed.
func (rec *recorder) Flush() {
	if rec.streaming {
		_ = http.NewResponseController(rec.client).Flush()
	}
}

// stream settles the outcome without a body, and begins to send.
func (rec *recorder) stream() {
	rec.settle()
	rec.streams()
	rec.streaming = true
	rec.sendHead()
	_, _ = rec.client.Write(rec.body.Bytes()) // an error comes again with the next write
	rec.body = bytes.Buffer{}
}

// send sends the whole response that was kept. What goes wrong on the way to the
// client is the client's to notice, and changes nothing.
func (rec *recorder) send() {
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	rec.sendHead()
	if rec.body.Len() > 0 {
		_, _ = rec.client.Write(rec.body.Bytes())
	}
	rec.sendTrailer()
}

func (rec *recorder) sendHead() {
	replaceHeader(rec.client.Header(), rec.head)
	rec.client.WriteHeader(rec.status)
}

// sendTrailer hands over what the next handlers added to the header after the
// head. The flush makes the message chunked, without which there is no trailer.
func (rec *recorder) sendTrailer() {
	flushed := false
	for name, lines := range rec.header {
		if _, inHead := rec.head[name]; inHead {
			continue
		}
		if !flushed {
			_ = http.NewResponseController(rec.client).Flush()
			flushed = true
		}
		rec.client.Header()[name] = lines
	}
}

// whole reports whether the body is as long as its head declared.
func (rec *recorder) whole() bool {
	return rec.declared < 0 || rec.declared == rec.written || noBody(rec.status)
}

// mark adds a line to the head that is about to be sent, if there is one.
func (rec *recorder) mark(name, value string) {
	rec.header.Set(name, value)
	if rec.head != nil {
		rec.head.Set(name, value)
	}
}

// replaceHeader makes one header like another, in place.
func replaceHeader(to, from http.Header) {
	clear(to)
	for name, lines := range from {
		to[name] = lines
	}
}
