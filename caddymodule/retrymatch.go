package caddymodule

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"
)

// warnOfRetries looks for proxies behind this module's handlers that are told to
// send writes again: lb_retry_match can repeat a POST whose first try may have
// been executed, within one forward, where nothing can stop it.
func (a *App) warnOfRetries(ctx caddy.Context) {
	app, err := ctx.AppIfConfigured("http")
	if err != nil {
		return // no sites, nothing to look at
	}
	for name, server := range app.(*caddyhttp.App).Servers {
		if retriesBehind(server.Routes, false) {
			a.log.Warn("a reverse_proxy behind idempotency has lb_retry_match, which can send a write twice; take it out, or restrict it to reads",
				zap.String("server", name))
		}
	}
}

// retriesBehind walks the routes in order; guarded says that a handler of this
// module stands before them.
func retriesBehind(routes caddyhttp.RouteList, guarded bool) bool {
	for _, route := range routes {
		behind := guarded
		for _, handler := range route.Handlers {
			switch handler := handler.(type) {
			case *Handler:
				behind = true
			case *caddyhttp.Subroute:
				if retriesBehind(handler.Routes, behind) {
					return true
				}
			case *reverseproxy.Handler:
				if behind && handler.LoadBalancing != nil && len(handler.LoadBalancing.RetryMatch) > 0 {
					return true
				}
			}
		}
		// Its routes may also match what a later one matches: better one warning too many.
		guarded = guarded || behind
	}
	return false
}
