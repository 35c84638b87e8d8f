package caddymodule

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-idempotency/caddy-idempotency/canonical"
)

// Default limits in bytes.
const (
	DefaultMaxRequestBody  = 1 << 20
	DefaultMaxResponseBody = 1 << 20
)

// fingerprint reads the body to its end and makes the fingerprint, once.
func (h *Handler) fingerprint(x *exchange) error {
	if x.request != nil {
		return nil
	}
	if err := h.readBody(x); err != nil {
		return err
	}
	request := &canonical.Request{
		Method:   x.r.Method,
		Path:     concretePath(x.r),
		RawQuery: x.r.URL.RawQuery,
		Header:   x.r.Header,
		Body:     x.body,
	}
	print, err := h.canon.Fingerprint(request)
	if err != nil {
		return refuseBody(err)
	}
	x.request, x.print = request, print
	return nil
}

// readBody reads the body to its end, which is what makes the server send
// 100 Continue, and puts a copy in its place for whoever is next.
func (h *Handler) readBody(x *exchange) error {
	if x.r.ContentLength > h.MaxRequestBody {
		return refuseTooLarge(h.MaxRequestBody)
	}
	var buffer bytes.Buffer
	if x.r.ContentLength > 0 {
		buffer.Grow(int(x.r.ContentLength) + bytes.MinRead) // so that ReadFrom does not grow it again
	}
	if x.r.Body != nil {
		if _, err := buffer.ReadFrom(io.LimitReader(x.r.Body, h.MaxRequestBody+1)); err != nil {
			var tooLarge *http.MaxBytesError // of a request_body directive before this one
			if errors.As(err, &tooLarge) {
				return refuseTooLarge(tooLarge.Limit)
			}
			return caddyhttp.Error(http.StatusBadRequest, err) // the client went away, or broke the framing
		}
	}
	if int64(buffer.Len()) > h.MaxRequestBody {
		return refuseTooLarge(h.MaxRequestBody)
	}
	x.body = buffer.Bytes()
	x.r.Body = newBody(x.body)
	return nil
}

func newBody(body []byte) io.ReadCloser {
	if len(body) == 0 {
		return http.NoBody
	}
	return io.NopCloser(bytes.NewReader(body))
}

// concretePath is the path that the client asked for, and also the one that the
// upstream will see where a directive has rewritten it: two paths with one
// fingerprint would be two requests with one answer. A NUL parts them, which
// neither can hold.
func concretePath(r *http.Request) string {
	path := r.URL.EscapedPath()
	original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	if ok && original.URL != nil {
		if asked := original.URL.EscapedPath(); asked != path {
			return asked + "\x00" + path
		}
	}
	return path
}
