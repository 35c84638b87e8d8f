package caddymodule

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// How a retry of a completed request is answered.
const (
	// ReplayFull shows the stored response.
	ReplayFull = "full"

	// ReplayRefetch stores the reference alone, and fetches the resource with the
	// credentials of whoever asks: for rights that only the upstream knows.
	ReplayRefetch = "refetch"

	// ReplayReference answers with the status and the reference, without a body.
	ReplayReference = "reference"
)

func checkReplay(mode string) error {
	switch mode {
	case ReplayFull, ReplayRefetch, ReplayReference:
		return nil
	}
	return fmt.Errorf("%q is not known: write %s, %s or %s", mode, ReplayFull, ReplayRefetch, ReplayReference)
}

// keepsResponses reports whether more than status and reference is stored.
func (h *Handler) keepsResponses() bool {
	return h.Replay != ReplayRefetch && h.Replay != ReplayReference
}

// keeps returns what is stored of a response.
func (h *Handler) keeps(rec *recorder) *store.Response {
	if !h.keepsResponses() {
		return nil
	}
	before := rec.client.Header() // nothing has been sent yet
	return &store.Response{Header: h.headers.stored(rec.head, before), Body: rec.body.Bytes()}
}

// replayReference shows how the request was answered, and what it made.
func (h *Handler) replayReference(x *exchange, held *store.Record) error {
	header := x.w.Header()
	if held.Resource != "" {
		header.Set("Location", held.Resource)
	}
	header.Set(HeaderReplayed, "true")
	if !noBody(held.Status) {
		header.Set("Content-Length", "0")
	}
	x.w.WriteHeader(held.Status)
	return nil
}

// replayRefetch runs the next handlers for a GET of the resource, as the caller of
// now. What they say of a caller without rights reaches that caller; a success is
// answered with the status that the first request had, if that allows a body.
func (h *Handler) replayRefetch(x *exchange, held *store.Record) error {
	target, err := url.Parse(held.Resource)
	if err != nil || held.Resource == "" || target.IsAbs() && target.Host != x.r.Host || !target.IsAbs() && target.Host != "" {
		return &refusal{problem: problemNotRetained, record: held, detail: "The resource cannot be fetched by this route."}
	}
	r := x.r.Clone(x.r.Context())
	r.Method = http.MethodGet
	r.URL = x.r.URL.ResolveReference(&url.URL{Path: target.Path, RawPath: target.RawPath, RawQuery: target.RawQuery})
	r.URL.RawQuery = target.RawQuery
	r.RequestURI = r.URL.RequestURI()
	r.Body, r.ContentLength, r.TransferEncoding, r.Trailer, r.GetBody = http.NoBody, 0, nil, nil, nil
	for _, name := range []string{"Content-Type", "Content-Length", "Content-Encoding", "Expect", "Upgrade", "Http2-Settings", "If-Match", "If-None-Match", "Idempotency-Key", "X-Idempotency-Key"} {
		r.Header.Del(name)
	}
	return x.next.ServeHTTP(&refetched{ResponseWriter: x.w, original: held}, r)
}

// refetched gives a success the status of the first request. A 204 could not show
// what was fetched: that stays a 200.
type refetched struct {
	http.ResponseWriter
	original *store.Record
	wrote    bool
}

// Unwrap lets http.ResponseController through: nothing here is held back.
func (w *refetched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *refetched) WriteHeader(status int) {
	if !w.wrote && status >= 200 {
		w.wrote = true
		if status == http.StatusOK {
			if !noBody(w.original.Status) {
				status = w.original.Status
			}
			w.Header().Set(HeaderReplayed, "true")
			w.Header().Set("Location", w.original.Resource)
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *refetched) Write(p []byte) (int, error) {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}
