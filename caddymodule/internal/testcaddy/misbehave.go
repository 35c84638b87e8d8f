package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(misbehave{})
	httpcaddyfile.RegisterHandlerDirective("misbehave", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		h.Next()
		if !h.NextArg() {
			return nil, h.ArgErr()
		}
		return &misbehave{How: h.Val()}, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("misbehave", httpcaddyfile.Before, "reverse_proxy")
}

// misbehave lets the handlers after it do their work, keeps their answer to
// itself, and then does something else:
//
//	panic       panics
//	panic-late  panics after the head and a part of the body
//	error       returns an error with status 503
//	nothing     returns without an answer
//	trailer     answers with a trailer
type misbehave struct {
	How string `json:"how"`
}

func (misbehave) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.misbehave", New: func() caddy.Module { return new(misbehave) }}
}

func (m misbehave) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if err := next.ServeHTTP(httptest.NewRecorder(), r); err != nil {
		return err
	}
	switch m.How {
	case "panic":
		panic("misbehaving")
	case "panic-late":
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("half of"))
		panic("misbehaving")
	case "error":
		return caddyhttp.Error(http.StatusServiceUnavailable, errors.New("misbehaving"))
	case "nothing":
		return nil
	case "trailer":
		w.Header().Set("Trailer", "X-Digest")
		w.WriteHeader(http.StatusCreated)
		_, err := w.Write([]byte("made"))
		w.Header().Set("X-Digest", "d1")
		return err
	}
	return fmt.Errorf("misbehave %q is not known", m.How)
}
