package caddymodule

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"golang.org/x/net/http/httpguts"

	"github.com/caddy-idempotency/caddy-idempotency/canonical"
)

// Defaults of a route that have no file of their own.
const (
	DefaultReplayFor = 24 * time.Hour

	// DefaultPolicy is where every refusal links to.
	DefaultPolicy = "https://github.com/caddy-idempotency/caddy-idempotency/blob/main/docs/problems.md"
)

// maxKeyLength is how far max_key_length goes; see maxScopePart.
const maxKeyLength = 1024

// Provision implements caddy.Provisioner: it fills the defaults in and refuses what
// cannot work. No round trip to the store is made.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.log = ctx.Logger()
	h.fillDefaults()
	if err := h.check(); err != nil {
		return err
	}
	h.warn()

	h.methods = make(map[string]bool, len(h.Methods))
	for _, method := range h.Methods {
		h.methods[method] = true
	}
	h.rules = statusRules{route: h.OnStatus}
	h.headers = newHeaderRules(h.KeepHeaders, h.DropHeaders)

	rules := h.Fingerprint
	if rules.MaxBody == 0 {
		rules.MaxBody = h.MaxRequestBody
	}
	var err error
	if h.canon, err = canonical.Compile(rules); err != nil {
		return fmt.Errorf("fingerprint: %w", err)
	}

	app, err := ctx.App("idempotency")
	if err != nil {
		return err
	}
	h.app = app.(*App)
	return nil
}

func (h *Handler) fillDefaults() {
	setDefault(&h.Tenant, DefaultTenant)
	setDefault(&h.Key.Header, DefaultKeyHeader)
	setDefault(&h.Key.MaxLength, DefaultMaxKeyLength)
	setDefault(&h.MaxRequestBody, DefaultMaxRequestBody)
	setDefault(&h.MaxResponseBody, DefaultMaxResponseBody)
	setDefault(&h.UpstreamTimeout, caddy.Duration(DefaultUpstreamTimeout))
	setDefault(&h.Wait, caddy.Duration(DefaultWait))
	setDefault(&h.ReplayFor, caddy.Duration(DefaultReplayFor))
	setDefault(&h.Policy, DefaultPolicy)
	if len(h.Methods) == 0 {
		h.Methods = []string{"POST", "PATCH"}
	}
}

func setDefault[T comparable](value *T, fallback T) {
	var zero T
	if *value == zero {
		*value = fallback
	}
}

// check reports the first option that cannot work, and what to write instead. The
// Caddyfile's parser calls the same checks, to name the line.
func (h *Handler) check() error {
	if h.Actor == "" {
		return errNoActor
	}
	for _, method := range h.Methods {
		if err := checkMethod(method); err != nil {
			return err
		}
	}
	for pattern, rule := range h.OnStatus {
		if err := checkRule(pattern, rule); err != nil {
			return fmt.Errorf("on_status: %w", err)
		}
	}
	if h.Key.MaxLength < 1 || h.Key.MaxLength > maxKeyLength {
		return fmt.Errorf("max_key_length %d is out of range: write 1 to %d", h.Key.MaxLength, maxKeyLength)
	}
	for _, size := range []struct {
		name  string
		value int64
	}{{"max_request_body", h.MaxRequestBody}, {"max_response_body", h.MaxResponseBody}} {
		if size.value < 0 || size.value > maxBody {
			return fmt.Errorf("%s %d is out of range: write up to %d bytes", size.name, size.value, int64(maxBody))
		}
	}
	for _, duration := range []struct {
		name  string
		value caddy.Duration
	}{{"upstream_timeout", h.UpstreamTimeout}, {"replay_for", h.ReplayFor}, {"keep_for", h.KeepFor}} {
		if duration.value < 0 {
			return fmt.Errorf("%s %s is negative: write a duration such as 30s", duration.name, time.Duration(duration.value))
		}
	}
	names := append([]string{h.Key.Header}, h.KeepHeaders...)
	names = append(names, h.DropHeaders...)
	if h.ForwardKey != "" {
		names = append(names, h.ForwardKey)
	}
	for _, name := range names {
		if err := checkHeaderName(name); err != nil {
			return err
		}
	}
	for _, name := range h.KeepHeaders {
		if err := checkKeepHeader(name); err != nil {
			return err
		}
	}
	if err := h.Key.checkStrict(); err != nil {
		return err
	}
	return checkPolicy(h.Policy)
}

var errNoActor = errors.New("actor is not set: name who is asking by a trusted value, such as `actor {http.auth.user.id}`; " +
	"`actor shared` gives all callers of the route one bucket of keys")

// maxBody of max_request_body and max_response_body: what is kept in memory for
// each request, and in one row.
const maxBody = 512 << 20

func checkMethod(method string) error {
	switch {
	case !httpguts.ValidHeaderFieldName(method):
		return fmt.Errorf("method %q is not one: write names such as POST", method)
	case method != strings.ToUpper(method):
		return fmt.Errorf("method %q never occurs, since methods are case-sensitive: write %s", method, strings.ToUpper(method))
	case slices.Contains([]string{"CONNECT", "HEAD", "OPTIONS", "TRACE"}, method):
		return fmt.Errorf("method %s has no result that could be replayed: leave it out", method)
	}
	return nil
}

func checkHeaderName(name string) error {
	if !httpguts.ValidHeaderFieldName(name) {
		return fmt.Errorf("header name %q is not valid: write one such as X-Client-Reference", name)
	}
	return nil
}

func checkKeepHeader(name string) error {
	if !newHeaderRules([]string{name}, nil).stores(newHeaderRules([]string{name}, nil).keep[0]) {
		return fmt.Errorf("header %s is about the framing of one message and cannot be stored: leave it out", name)
	}
	return nil
}

func checkPolicy(policy string) error {
	u, err := url.Parse(policy)
	if err != nil || strings.ContainsAny(policy, "<> \"\r\n") || (u.Scheme == "" && !strings.HasPrefix(policy, "/")) {
		return fmt.Errorf("policy %q is not a link: write a URL such as https://example.com/idempotency, or a path such as /idempotency", policy)
	}
	return nil
}

// warn logs what works, and is likely to be a mistake.
func (h *Handler) warn() {
	for part, template := range map[string]string{"tenant": h.Tenant, "actor": h.Actor} {
		for _, untrusted := range []string{"{http.request.header.", "{http.request.cookie.", "{http.request.uri.query", "{http.request.body"} {
			if strings.Contains(template, untrusted) {
				h.log.Warn("scope is taken from what a client can choose; make sure that a directive before this one, such as forward_auth, sets it",
					zap.String("part", part), zap.String("value", template))
			}
		}
	}
	if name := strings.ToLower(h.ForwardKey); name == "idempotency-key" || name == "x-idempotency-key" {
		h.log.Warn("with this header, Go's HTTP transport sends a request without a body once more when a connection dies; forward the key under another name",
			zap.String("forward_key", h.ForwardKey))
	}
	if h.KeepFor > 0 {
		h.log.Warn("tombstones are purged after keep_for; a key that comes back later is executed again",
			zap.Duration("keep_for", time.Duration(h.KeepFor)))
	}
}
