package caddymodule

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-idempotency/caddy-idempotency/canonical"
	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// Handler makes the writes of the handlers after it safe to retry. For one
// scoped key, they receive a request at most once unless they are known to have
// done nothing; its answer is stored and shown to every retry.
//
// It belongs after authentication, which is where its directive is ordered, and
// before the proxy.
type Handler struct {
	// Tenant is the first part of the scope: whose data it is. A constant, or
	// placeholders of trusted values, such as `acme`. At most 512 bytes.
	// Default: `default`.
	Tenant string `json:"tenant,omitempty"`

	// Actor is the second part of the scope: who is asking, such as
	// `{http.auth.user.id}`. Required. A request for which it comes out empty is
	// refused. The word `shared` gives all callers one bucket, which only a route
	// with a single client should do. At most 512 bytes.
	Actor string `json:"actor,omitempty"`

	// Operation is the third part of the scope: what is asked for, such as
	// `create-order`. It is also a label of the metrics, as it is written here.
	// At most 512 bytes. Default: the request's method and host.
	Operation string `json:"operation,omitempty"`

	// Methods that are protected, such as `["POST", "PUT"]`. All others pass.
	// Default: `POST` and `PATCH`.
	Methods []string `json:"methods,omitempty"`

	// Key says where the client's key is, and what is accepted as one, such as
	// `{"header": "X-Client-Reference"}`. Default: the header `Idempotency-Key`.
	Key KeySource `json:"key,omitzero"`

	// Fingerprint says what changes the business result, such as
	// `{"version": "orders/v1", "exclude": ["trace_id"]}`. Default: method, path,
	// query, media type and the whole body.
	Fingerprint canonical.Rules `json:"fingerprint,omitzero"`

	// MaxRequestBody is the size in bytes up to which a request is accepted; a
	// larger one gets 413. From 1 to 512 MiB, such as `65536`. Default: 1 MiB.
	MaxRequestBody int64 `json:"max_request_body,omitempty"`

	// MaxResponseBody is the size in bytes up to which a response is stored. The
	// first client gets a larger one in full, a retry is told that it is not kept.
	// From 1 to 512 MiB, such as `65536`. Default: 1 MiB.
	MaxResponseBody int64 `json:"max_response_body,omitempty"`

	// UpstreamTimeout is how long the upstream may take, to the last byte of its
	// response. Then the outcome is unknown. A client that goes away changes
	// nothing. From 1ms to 24h, such as `"10s"`. Default: 30s.
	UpstreamTimeout caddy.Duration `json:"upstream_timeout,omitempty"`

	// Wait is how long a retry waits for the request that is being executed,
	// before it is answered 409. From 1ms to 24h, such as `"500ms"`; a negative
	// value does not wait. Default: 5s.
	Wait caddy.Duration `json:"wait,omitempty"`

	// ReplayFor is the replay window: how long the response is stored, counted
	// from completion. Then a tombstone stays. From 1ms to 36500d, such as `"7d"`.
	// Default: 24h.
	ReplayFor caddy.Duration `json:"replay_for,omitempty"`

	// KeepFor is how long the tombstone stays after the replay window. A key that
	// is forgotten can be executed again. From 1ms to 36500d, such as `"3650d"`.
	// Default: 0, for ever.
	KeepFor caddy.Duration `json:"keep_for,omitempty"`

	// OnStatus changes what an upstream's status means: from a status (`503`) or a
	// class (`5xx`) to `store`, `release` or `unknown`, such as
	// `{"503": "release"}`. A status goes before its class. Default: 401, 403, 407,
	// 408, 425 and 429 release the key; 499 and 5xx, other than 501 and 505, leave
	// the outcome unknown; all others are stored.
	OnStatus map[string]Rule `json:"on_status,omitempty"`

	// ForwardKey is the name of a request header in which the upstream gets the
	// client's key, such as `X-Client-Reference`. Default: it does not, because Go's
	// HTTP transport sends a request with an Idempotency-Key or X-Idempotency-Key,
	// and no body, once more by itself when a connection dies.
	ForwardKey string `json:"forward_key,omitempty"`

	// KeepHeaders are response headers that are stored although they are on the
	// list of those that are not, such as `["X-Request-Id"]`. Framing and hop-by-hop
	// headers never are. Default: none.
	KeepHeaders []string `json:"keep_headers,omitempty"`

	// DropHeaders are response headers that are not stored, besides those that
	// never are, such as `Date` and `Set-Cookie`. An example: `["X-Served-By"]`.
	// Default: none.
	DropHeaders []string `json:"drop_headers,omitempty"`

	// Resource is where the reference to the business object is found: a gjson
	// path into the response body, such as `data.id`. Default: the `Location` header.
	Resource string `json:"resource,omitempty"`

	// NaturalKey is the business identity inside the payload, such as
	// `{"paths": ["requisition_no"]}`. Default: none.
	NaturalKey *NaturalKey `json:"natural_key,omitempty"`

	// Verify is how the upstream is asked whether a request of unknown outcome was
	// executed. Default: it is not, and an operator decides. The operation must be
	// a constant then. An example:
	// `{"url": "http://orders:8080/orders?client_ref={idempotency.key}&user={idempotency.actor}", "exists": {"status": 200, "path": "orders.#>0"}}`.
	Verify *Verifier `json:"verify,omitempty"`

	// InFlightLocation is where a client can ask for the status of a request that is
	// being executed: a path or a URL, such as `/idempotency/{idempotency.key}`. A retry is then
	// answered 202 with it. Default: none, a retry is answered 409.
	InFlightLocation string `json:"in_flight_location,omitempty"`

	// Replay says how a retry of a completed request is answered: `full` shows the
	// stored response; `refetch` stores status and resource alone and fetches the
	// resource with the credentials of whoever asks; `reference` answers with
	// status and resource without a body. An example: `"refetch"`. Default: `full`.
	Replay string `json:"replay,omitempty"`

	// StoreKey says what is kept of the client's key: `plain`, or `digest`, which
	// is made with the app's secret. An example: `"digest"`. Default: `plain`.
	StoreKey string `json:"store_key,omitempty"`

	// OnStoreFailure says what happens while the store does not answer: `refuse`
	// is 503; `pass` forwards without protection, unless the key is known to be taken,
	// marked by a header, a metric and a log line. An example: `"pass"`.
	// Default: `refuse`.
	OnStoreFailure string `json:"on_store_failure,omitempty"`

	// Quota bounds the requests with a new key: those that execute at once, and those
	// that come in a window. One too many gets 429. Default: no bounds.
	Quota Quotas `json:"quota,omitzero"`

	// Policy is the URL at which the route's idempotency policy is published, which
	// every refusal links to, such as `/docs/idempotency`. Default: this project's
	// description of the problems.
	Policy string `json:"policy,omitempty"`

	app     *App
	log     *zap.Logger
	methods map[string]bool
	canon   *canonical.Policy
	rules   statusRules
	headers headerRules
	quotas  []store.Quota
}

// CaddyModule returns the Caddy module information.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.idempotency",
		New: func() caddy.Module { return new(Handler) },
	}
}

// claimRounds bounds how often a request that found its record released goes
// back to compete for it.
const claimRounds = 16

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !h.guards(r) {
		return next.ServeHTTP(w, r)
	}
	if caddyhttp.IsIncremental(r.Header) {
		// RFC 10036: who must buffer what is marked Incremental refuses it.
		return caddyhttp.Error(http.StatusNotImplemented, errIncremental)
	}
	if isProtected(r.Context()) {
		return caddyhttp.Error(http.StatusInternalServerError, errNested)
	}
	x := &exchange{w: w, r: r, next: next}
	defer h.observe(x) // also if a response that streams breaks off, which is a panic
	err := h.serve(x)
	if refusal := (*refusal)(nil); errors.As(err, &refusal) {
		err = h.refuse(x, refusal)
	}
	return err
}

var errIncremental = errors.New("an idempotent request is buffered, so that it cannot be incremental")

// exchange is one request on its way through the steps.
type exchange struct {
	w    http.ResponseWriter
	r    *http.Request
	next caddyhttp.Handler

	key     string // as the client sent it
	id      store.Identity
	body    []byte
	request *canonical.Request // what the fingerprint was made of; nil until then
	print   canonical.Fingerprint

	natural  string // natural key, if the route has one
	verified bool   // the upstream has been asked for this exchange

	outcome outcome // of the exchange, for metrics and the access log
}

// serve is the table of contents of the protocol.
func (h *Handler) serve(x *exchange) error {
	identified, err := h.identify(x) // key and scope, before a byte of the body is read
	if err != nil {
		return err
	}
	if !identified {
		x.outcome = outcomeUnprotected
		return x.next.ServeHTTP(x.w, x.r)
	}
	if err := h.fingerprint(x); err != nil { // of the body, read to its end
		return err
	}
	if x.natural, err = h.naturalKey(x); err != nil {
		return refuseBody(err)
	}

	backend, done, err := h.app.use()
	if err != nil { // the configuration begins or has ended, which is no failure of the store
		return refuseStore(err)
	}
	defer done()
	switch err := h.app.proveSecret(x.r.Context(), backend, h.StoreKey); {
	case errors.Is(err, errOtherSecret):
		return refuseStore(err)
	case err != nil:
		return h.claimFailed(x, backend, err)
	}

	waiting := h.newWait()
	for range claimRounds {
		claim, held, err := backend.claim(x.r.Context(), x.id, store.Fingerprint(x.print), x.natural, h.lease(), h.quotas)
		var taken *store.NaturalKeyTakenError
		var exceeded *store.QuotaExceededError
		var gone bool
		switch {
		case errors.As(err, &taken):
			gone, err = h.answerFromHolder(x, backend, taken.Holder, waiting)
		case errors.As(err, &exceeded):
			return refuseQuota(exceeded)
		case err != nil:
			return h.claimFailed(x, backend, err)
		case claim != nil:
			return h.execute(x, backend, claim)
		default:
			gone, err = h.answerFrom(x, backend, held, waiting)
		}
		if !gone {
			return err
		}
	}
	return refuseInFlight(nil)
}

// guards reports whether the request is a write that this route protects. The
// opening handshake of a WebSocket is a GET (RFC 6455, section 4.1), which no
// route protects; a write that offers an upgrade is a write all the same.
func (h *Handler) guards(r *http.Request) bool { return h.methods[r.Method] }

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
