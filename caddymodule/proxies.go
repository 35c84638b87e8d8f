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
// write twice within one forward, where nothing can stop it. Of two routes that may
// match the same request or not: better one warning too many.
func (a *App) warnOfProxies(ctx caddy.Context) {
	err := walkRoutes(ctx, func(server string, handler caddyhttp.MiddlewareHandler, before passed) error {
		for _, why := range dangersAt(handler, before) {
			a.log.Warn("a reverse_proxy behind idempotency can send a write twice", zap.String("server", server), zap.String("why", why))
		}
		return nil
	})
	if err != nil {
		a.log.Error("looking for proxies that can send a write twice", zap.Error(err))
	}
}

func dangersAt(handler caddyhttp.MiddlewareHandler, before passed) []string {
	if proxy, ok := handler.(*reverseproxy.Handler); ok && before.some {
		return dangersOf(proxy)
	}
	return nil
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
