package caddymodule

import (
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// outcome is how one exchange went, as a label of the metrics and a field of the
// access log.
type outcome string

const (
	outcomeFirst         outcome = "first"          // executed, and settled
	outcomeUnsettled     outcome = "unsettled"      // executed, and not yet stored
	outcomeReleased      outcome = "released"       // executed or not sent, and the key is open again
	outcomeBecameUnknown outcome = "became_unknown" // executed, perhaps
	outcomeBrokenOff     outcome = "broken_off"     // executed, and the response broke off
	outcomeReplayed      outcome = "replayed"
	outcomeWaited        outcome = "waited" // replayed, after waiting for the first
	outcomeMismatch      outcome = "mismatch"
	outcomeInFlight      outcome = "in_flight"
	outcomeUnknown       outcome = "unknown"
	outcomeExpired       outcome = "expired"
	outcomeNotRetained   outcome = "not_retained"
	outcomeBusinessKey   outcome = "business_key_taken"
	outcomeQuota         outcome = "quota_exceeded"
	outcomeKeyMissing    outcome = "key_missing"
	outcomeKeyInvalid    outcome = "key_invalid"
	outcomeUnidentified  outcome = "unidentified"
	outcomeBodyInvalid   outcome = "body_invalid"
	outcomeBodyTooLarge  outcome = "body_too_large"
	outcomeStoreError    outcome = "store_error"
	outcomeUnprotected   outcome = "unprotected" // passed without a key
	outcomeFailedOpen    outcome = "failed_open" // forwarded without protection, as the route says
	outcomeClientGone    outcome = "client_gone" // while it waited
)

// observe counts the exchange and adds to its access log entry. The key itself
// goes nowhere: it is a secret of the client, and a digest is enough to find it.
func (h *Handler) observe(x *exchange) {
	if x.outcome == "" {
		return // the client broke off while it sent its body
	}
	metrics.requests.WithLabelValues(h.operationLabel(), string(x.outcome)).Inc()
	if extra, ok := x.r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		extra.Set(zap.String("idempotency_outcome", string(x.outcome)))
		if x.id.Key != "" {
			extra.Set(zap.String("idempotency_key_digest", x.id.KeyDigest()))
		}
	}
}

// operationLabel is the operation as the configuration writes it, so that no
// value of a client becomes a label.
func (h *Handler) operationLabel() string {
	if h.Operation == "" {
		return "{http.request.method} {http.request.host}"
	}
	return h.Operation
}

// logger names the record in what it logs.
func (h *Handler) logger(x *exchange) *zap.Logger { return naming(h.log, x.id) }

func naming(log *zap.Logger, id store.Identity) *zap.Logger {
	return log.With(
		zap.String("tenant", id.Tenant),
		zap.String("operation", id.Operation),
		zap.String("key_digest", id.KeyDigest()),
	)
}

// log is for what somebody may have to look into. What a client did wrong is
// in the access log.
func (r *refusal) log(log *zap.Logger, id store.Identity) {
	level := zapcore.DebugLevel
	switch r.outcome {
	case outcomeStoreError:
		level = zapcore.ErrorLevel
	case outcomeMismatch, outcomeUnidentified:
		level = zapcore.WarnLevel
	}
	if log.Core().Enabled(level) {
		naming(log, id).Log(level, "request refused",
			zap.String("problem", r.slug), zap.Int("status", r.status), zap.NamedError("reason", r.err))
	}
}
