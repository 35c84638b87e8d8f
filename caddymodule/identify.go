package caddymodule

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// SharedActor is the actor of a route whose callers are one and the same.
const SharedActor = "shared"

// DefaultTenant is the tenant of a route that names none.
const DefaultTenant = "default"

// ScopeError says that a part of the scope came out empty or unusable: it is not
// known who is asking.
type ScopeError struct {
	Part   string // tenant, actor or operation
	Reason string
}

func (e *ScopeError) Error() string { return e.Part + " " + e.Reason }

// maxScopePart in bytes, of each of tenant, actor and operation. Together with
// the key they fit into one entry of a PostgreSQL index (2704 bytes).
const maxScopePart = 512

// identify finds out the key and the scope. It reports false for a request
// without a key where the route lets those pass.
func (h *Handler) identify(x *exchange) (bool, error) {
	key, err := h.findKey(x)
	refused := (*refusal)(nil)
	switch {
	case errors.As(err, &refused):
		return false, err
	case err == errKeyMissing && h.Key.Optional:
		return false, nil
	case err == errKeyMissing:
		return false, refuseKeyMissing(h.Key)
	case err != nil:
		return false, refuseKey(err)
	}
	scope, err := resolveScope(x.r, h.Tenant, h.Actor, h.Operation)
	if err != nil {
		return false, refuseScope(err)
	}
	x.key = key
	x.id = store.Identity{Scope: scope, Key: h.app.storedKey(h.StoreKey, key)}
	return true, nil
}

// findKey takes the key from the header, or, where the route says so, from the
// body, which has to be read and understood first.
func (h *Handler) findKey(x *exchange) (string, error) {
	if h.Key.Body == "" {
		return h.Key.fromHeader(x.r.Header)
	}
	if err := h.fingerprint(x); err != nil {
		return "", err
	}
	body, err := h.canon.JSON(x.request)
	if err != nil {
		return "", refuseBody(err)
	}
	return h.Key.fromBody(body)
}

// resolveScope resolves the placeholders of a route's scope. One that is empty or unknown is an
// error wherever it stands: `orders-{http.auth.user.id}` would otherwise be a
// bucket that all anonymous callers share.
func resolveScope(r *http.Request, tenant, actor, operation string) (scope store.Scope, err error) {
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	for _, part := range []struct {
		name, template string
		value          *string
	}{
		{"tenant", tenant, &scope.Tenant},
		{"actor", actor, &scope.Actor},
		{"operation", operation, &scope.Operation},
	} {
		if part.template == "" { // only the operation may be
			*part.value = defaultOperation(r)
			continue
		}
		value, err := repl.ReplaceOrErr(part.template, true, true)
		if err != nil {
			return scope, &ScopeError{Part: part.name, Reason: "is not known for this request"}
		}
		if strings.TrimSpace(value) == "" || !printable(value) {
			return scope, &ScopeError{Part: part.name, Reason: "is empty or holds a control character"}
		}
		if len(value) > maxScopePart {
			return scope, &ScopeError{Part: part.name, Reason: fmt.Sprintf("is longer than %d bytes", maxScopePart)}
		}
		*part.value = value
	}
	return scope, nil
}

// defaultOperation is the method and the host, in the one spelling that all
// spellings of the same host have.
func defaultOperation(r *http.Request) string {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else {
		host = strings.Trim(host, "[]") // an IPv6 address without a port
	}
	return fmt.Sprintf("%s %s", r.Method, strings.ToLower(strings.TrimSuffix(host, ".")))
}
