package service

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strconv"
)

// reply is an answer before it is on the wire, so that faults can change it.
type reply struct {
	status int
	header http.Header
	body   io.Reader
	length int64

	hints   bool   // 103 first
	chunked bool   // the length is not told
	halfway func() // called when half of the body is with the client
	pause   func() // called before each byte of the body
}

func newReply(status int, contentType string, body []byte) *reply {
	p := &reply{status: status, header: http.Header{}}
	p.header.Set("Content-Type", contentType)
	p.setBody(body)
	return p
}

func jsonReply(status int, v any) *reply {
	body, err := json.Marshal(v)
	if err != nil { // nothing that is answered here can fail to be JSON
		return errorReply(http.StatusInternalServerError, err.Error())
	}
	return newReply(status, "application/json", append(body, '\n'))
}

func errorReply(status int, text string) *reply {
	return jsonReply(status, map[string]string{"error": text})
}

func (p *reply) setBody(body []byte) {
	p.body, p.length = bytes.NewReader(body), int64(len(body))
}

// bodyless says whether the protocol allows no body with the status.
func (p *reply) bodyless() bool {
	return p.status == http.StatusNoContent || p.status == http.StatusNotModified
}

// send puts the answer on the wire. A client that is gone is no error here: the order is made.
func (p *reply) send(w http.ResponseWriter) {
	flush := http.NewResponseController(w).Flush
	if p.hints {
		w.Header().Set("Link", "</orders.css>; rel=preload; as=style")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
	}
	maps.Copy(w.Header(), p.header)
	if p.bodyless() {
		p.setBody(nil)
		w.Header().Del("Content-Type")
	} else if !p.chunked {
		w.Header().Set("Content-Length", strconv.FormatInt(p.length, 10))
	}
	w.WriteHeader(p.status)
	if p.chunked {
		_ = flush() // or net/http finds out the length of a short body by itself, and tells it
	}

	body, to := p.body, io.Writer(w)
	if p.pause != nil {
		body, to = &dribble{p.body, p.pause}, &flusher{w, flush}
	}
	if p.halfway != nil {
		_, _ = io.CopyN(to, body, p.length/2)
		_ = flush()
		p.halfway()
	}
	_, _ = io.Copy(to, body)
}

// dribble reads a byte at a time.
type dribble struct {
	io.Reader
	pause func()
}

func (d *dribble) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	d.pause()
	return d.Reader.Read(b[:1])
}

// flusher lets nothing wait for company.
type flusher struct {
	io.Writer
	flush func() error
}

func (f *flusher) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	if err != nil {
		return n, err
	}
	return n, f.flush()
}
