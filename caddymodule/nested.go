package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// One request can be protected once. A second handler of this module behind the
// first would find no key, as the first does not hand it on, and its refusal would
// be stored as the answer; with a key of another place, the request would compete
// with itself. So the second one refuses to run, and the first gives its key back:
// a mistake of the configuration must not use up keys.

// errNested is the second handler's error.
var errNested = errors.New("two idempotency handlers match this request, one inside of the other: let their matchers exclude each other, or leave one")

type protectedKey struct{}

// protected marks the context of a request that a handler forwards.
func protected(ctx context.Context) context.Context {
	return context.WithValue(ctx, protectedKey{}, true)
}

func isProtected(ctx context.Context) bool { return ctx.Value(protectedKey{}) != nil }

// checkNested refuses routes in which a second handler can never be reached but
// behind a first one, or a first one never without a second one. What depends on
// two matchers shows up with the request.
func checkNested(ctx caddy.Context) error {
	app, err := ctx.AppIfConfigured("http")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return nil // no sites, nothing to look at
	}
	if err != nil {
		return err
	}
	for name, server := range app.(*caddyhttp.App).Servers {
		if err := nestedIn(server.Routes, nil); err != nil {
			return fmt.Errorf("server %s: %w", name, err)
		}
	}
	return nil
}

// nestedIn walks the routes in order; outer are the handlers that every request
// has been through when it comes to them.
func nestedIn(routes caddyhttp.RouteList, outer []*Handler) error {
	var some []*Handler // that only some requests have been through
	for _, route := range routes {
		always := len(route.MatcherSets) == 0 && route.Group == ""
		within := slices.Clone(outer)
		if always {
			within = append(within, some...)
		}
		for _, handler := range route.Handlers {
			switch handler := handler.(type) {
			case *Handler:
				for _, first := range within {
					if first.covers(handler) {
						return fmt.Errorf("operations %q and %q: %w", first.Operation, handler.Operation, errNested)
					}
				}
				within = append(within, handler)
			case *caddyhttp.Subroute:
				if err := nestedIn(handler.Routes, within); err != nil {
					return err
				}
			}
		}
		switch last := len(route.Handlers) - 1; {
		case always:
			outer = within
		case last >= 0 && !route.Terminal:
			if handler, ok := route.Handlers[last].(*Handler); ok { // nothing after it answers
				some = append(some, handler)
			}
		}
	}
	return nil
}

// covers reports whether the other handler gets requests that this one protects.
func (h *Handler) covers(other *Handler) bool {
	if h.Key.Optional { // without a key, a request is free for the next one
		return false
	}
	for method := range other.methods {
		if h.methods[method] {
			return true
		}
	}
	return false
}
