package caddymodule

import (
	"context"
	"errors"
	"fmt"

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
	return walkRoutes(ctx, func(server string, handler caddyhttp.MiddlewareHandler, before passed) error {
		if err := nestedAt(handler, before); err != nil {
			return fmt.Errorf("server %s: %w", server, err)
		}
		return nil
	})
}

func nestedAt(handler caddyhttp.MiddlewareHandler, before passed) error {
	second, ok := handler.(*Handler)
	if !ok {
		return nil
	}
	for _, first := range before.every {
		if first.covers(second) {
			return fmt.Errorf("operations %q and %q: %w", first.Operation, second.Operation, errNested)
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
