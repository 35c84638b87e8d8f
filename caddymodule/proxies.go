package caddymodule

import (
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"
)

// warnOfProxies looks for proxies behind this module's handlers that can send a
// write twice within one forward, where nothing can stop it.
func (a *App) warnOfProxies(ctx caddy.Context) {
	app, err := ctx.AppIfConfigured("http")
	if err != nil {
		return // no sites, nothing to look at
	}
	for name, server := range app.(*caddyhttp.App).Servers {
		for _, why := range dangersBehind(server.Routes, false) {
			a.log.Warn("a reverse_proxy behind idempotency can send a write twice", zap.String("server", name), zap.String("why", why))
		}
	}
}

// dangersBehind walks the routes in order; guarded says that a handler of this
// module stands before them.
func dangersBehind(routes caddyhttp.RouteList, guarded bool) (dangers []string) {
	for _, route := range routes {
		behind := guarded
		for _, handler := range route.Handlers {
			switch handler := handler.(type) {
			case *Handler:
				behind = true
			case *caddyhttp.Subroute:
				dangers = append(dangers, dangersBehind(handler.Routes, behind)...)
			case *reverseproxy.Handler:
				if behind {
					dangers = append(dangers, dangersOf(handler)...)
				}
			}
		}
		// Its routes may also match what a later one matches: better one warning too many.
		guarded = guarded || behind
	}
	return dangers
}

// dangersOf lists what makes a proxy, or Go's transport in it, repeat a request
// whose first try may have been executed.
func dangersOf(proxy *reverseproxy.Handler) (dangers []string) {
	if proxy.LoadBalancing != nil && len(proxy.LoadBalancing.RetryMatch) > 0 {
		dangers = append(dangers, "lb_retry_match repeats what was sent: take it out, or restrict it to reads")
	}
	if r := proxy.Rewrite; r != nil && slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace}, r.Method) {
		dangers = append(dangers, "method "+r.Method+" is repeated by Go's transport when a connection dies: leave the method as it is")
	}
	if proxy.Headers != nil && proxy.Headers.Request != nil {
		for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
			ops := proxy.Headers.Request
			if len(ops.Set[name])+len(ops.Add[name]) > 0 {
				dangers = append(dangers, "header_up "+name+" makes Go's transport repeat a request without a body: use forward_key and another name")
			}
		}
	}
	return dangers
}
