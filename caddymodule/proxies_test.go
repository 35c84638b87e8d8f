package caddymodule

import (
	"net/http"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"
	"github.com/stretchr/testify/require"
)

func TestProxiesThatCanSendAWriteTwiceAreNamed(t *testing.T) {
	keyBack := &headers.Handler{Request: &headers.HeaderOps{Set: http.Header{"Idempotency-Key": {"{http.request.header.Idempotency-Key}"}}}}
	for _, c := range []struct {
		name  string
		proxy *reverseproxy.Handler
		why   string // "" for none
	}{
		{"plain", &reverseproxy.Handler{}, ""},
		{"retry_match", &reverseproxy.Handler{LoadBalancing: &reverseproxy.LoadBalancing{RetryMatch: caddyhttp.MatcherSets{{}}}}, "lb_retry_match"},
		{"method GET", &reverseproxy.Handler{Rewrite: &rewrite.Rewrite{Method: "GET"}}, "method GET"},
		{"method PUT", &reverseproxy.Handler{Rewrite: &rewrite.Rewrite{Method: "PUT"}}, ""},
		{"the key again", &reverseproxy.Handler{Headers: &headers.Handler{Request: keyBack.Request}}, "header_up Idempotency-Key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			behind := caddyhttp.RouteList{{Handlers: []caddyhttp.MiddlewareHandler{
				&Handler{}, &caddyhttp.Subroute{Routes: caddyhttp.RouteList{{Handlers: []caddyhttp.MiddlewareHandler{c.proxy}}}},
			}}}
			before := caddyhttp.RouteList{{Handlers: []caddyhttp.MiddlewareHandler{c.proxy, &Handler{}}}}

			found := dangersIn(behind)
			require.Empty(t, dangersIn(before), "it runs before")
			if c.why == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Contains(t, found[0], c.why)
		})
	}
}

func dangersIn(routes caddyhttp.RouteList) (found []string) {
	w := &walker{visit: func(handler caddyhttp.MiddlewareHandler, before passed) error {
		found = append(found, dangersAt(handler, before)...)
		return nil
	}}
	_, _ = w.list(routes, passed{})
	return found
}

// One host has one operation, however a client spells it.
func TestDefaultOperationIsOneForEachHost(t *testing.T) {
	for host, want := range map[string]string{
		"orders.example.com": "POST orders.example.com", "ORDERS.example.com": "POST orders.example.com",
		"orders.example.com.": "POST orders.example.com", "orders.example.com:80": "POST orders.example.com",
		"ORDERS.example.com.:8080": "POST orders.example.com",
		"[::1]":                    "POST ::1", "[::1]:80": "POST ::1", "127.0.0.1:80": "POST 127.0.0.1",
	} {
		require.Equal(t, want, defaultOperation(&http.Request{Method: "POST", Host: host}), host)
	}
}
