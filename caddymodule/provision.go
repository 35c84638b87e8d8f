package caddymodule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

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
	h.quotas = h.Quota.limits()

	app, err := ctx.App("idempotency")
	if err != nil {
		return err
	}
	h.app = app.(*App)
	h.Fingerprint.MemberKey = h.app.memberKey()
	if h.canon, err = h.compile(); err != nil {
		return err // which names the rule
	}
	if err := h.app.needSecret(h.StoreKey); err != nil {
		return err
	}
	if h.Verify == nil {
		return nil
	}
	if err := h.Verify.provision(); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return h.app.addVerifier(h)
}

// compile prepares the fingerprint's rules. A coded body may grow to what a plain
// one may have.
func (h *Handler) compile() (*canonical.Policy, error) {
	rules := h.Fingerprint
	setDefault(&rules.MaxBody, h.MaxRequestBody)
	return canonical.Compile(rules)
}

func (h *Handler) fillDefaults() {
	setDefault(&h.Tenant, DefaultTenant)
	if h.Key.Body == "" {
		setDefault(&h.Key.Header, DefaultKeyHeader)
	}
	setDefault(&h.Key.MaxLength, DefaultMaxKeyLength)
	setDefault(&h.MaxRequestBody, DefaultMaxRequestBody)
	setDefault(&h.MaxResponseBody, DefaultMaxResponseBody)
	setDefault(&h.UpstreamTimeout, caddy.Duration(DefaultUpstreamTimeout))
	setDefault(&h.Wait, caddy.Duration(DefaultWait))
	setDefault(&h.ReplayFor, caddy.Duration(DefaultReplayFor))
	setDefault(&h.Policy, DefaultPolicy)
	if h.Verify != nil {
		h.Verify.fillDefaults(time.Duration(h.UpstreamTimeout))
	}
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

// warn logs what works, and is likely to be a mistake.
func (h *Handler) warn() {
	h.warnOfScope()
	if name := strings.ToLower(h.ForwardKey); name == "idempotency-key" || name == "x-idempotency-key" {
		h.log.Warn("with this header, Go's HTTP transport sends a request without a body once more when a connection dies; forward the key under another name",
			zap.String("forward_key", h.ForwardKey))
	}
	for _, pattern := range slices.Sorted(maps.Keys(h.OnStatus)) {
		if h.OnStatus[pattern] == RuleRelease && pattern < "4" {
			h.log.Warn("on_status releases the key after a success; the retry is executed again", zap.String("status", pattern))
		}
	}
	if h.StoreKey == StoreKeyDigest {
		h.log.Warn("keys are found by their digests: one that was stored before, plain or under another secret, is not found again, and is executed again")
	}
	if h.KeepFor > 0 {
		h.log.Warn("tombstones are purged after keep_for; a key that comes back later is executed again",
			zap.Duration("keep_for", time.Duration(h.KeepFor)))
	}
}
