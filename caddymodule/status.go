package caddymodule

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// Status tells a client what is known of its own key, without a retry.
//
// It answers in the same scope rules as Handler: whoever is not the one who sent
// the request learns nothing of it. It belongs after authentication.
type Status struct {
	// Tenant of the route whose keys are looked up, as it is written there, such as
	// `acme`. Default: `default`.
	Tenant string `json:"tenant,omitempty"`

	// Actor of the route, such as `{http.auth.user.id}`. Required.
	Actor string `json:"actor,omitempty"`

	// Operation of the route, such as `create-order`. Required.
	Operation string `json:"operation,omitempty"`

	// Key says by a placeholder where the key is in the request, such as
	// `{http.request.uri.query.key}`. Default: the last element of the path, as in
	// `GET /idempotency/8e03978e`.
	Key string `json:"key,omitempty"`

	// StoreKey is that of the route, `plain` or `digest`. Default: `plain`.
	StoreKey string `json:"store_key,omitempty"`

	// Response lets a client ask for the stored response too, by the query
	// `response=true`. Default: false.
	Response bool `json:"response,omitempty"`

	// Policy is the URL at which the route's idempotency policy is published, which
	// every refusal links to, such as `/docs/idempotency`. Default: this project's
	// description of the problems.
	Policy string `json:"policy,omitempty"`

	app *App
	log *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (Status) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.idempotency_status",
		New: func() caddy.Module { return new(Status) },
	}
}

// Provision implements caddy.Provisioner.
func (s *Status) Provision(ctx caddy.Context) error {
	s.log = ctx.Logger()
	setDefault(&s.Tenant, DefaultTenant)
	setDefault(&s.Policy, DefaultPolicy)
	if err := s.check(); err != nil {
		return err
	}
	app, err := ctx.App("idempotency")
	if err != nil {
		return err
	}
	s.app = app.(*App)
	return s.app.needSecret(s.StoreKey)
}

func (s *Status) check() error {
	if s.Actor == "" || s.Operation == "" {
		return errors.New("actor and operation are not both set: write them as the route does whose keys are looked up")
	}
	for _, option := range []struct {
		name string
		err  error
	}{
		{"tenant", unless(s.Tenant == "", checkScope, s.Tenant)},
		{"actor", checkScope(s.Actor)},
		{"operation", checkScope(s.Operation)},
		{"operation", checkStatusOperation(s.Operation)},
		{"key", unless(s.Key == "", checkStatusKey, s.Key)},
		{"store_key", unless(s.StoreKey == "", checkStoreKey, s.StoreKey)},
		{"policy", unless(s.Policy == "", checkPolicy, s.Policy)},
	} {
		if option.err != nil {
			return fmt.Errorf("%s: %w", option.name, option.err)
		}
	}
	return nil
}

// checkStatusOperation refuses what is another value here than on the route.
func checkStatusOperation(operation string) error {
	names, _ := placeholdersOf(operation)
	for _, name := range names {
		if name == "http.request.method" || name == "method" {
			return fmt.Errorf("{%s} is the method of this request, GET: write the method of the route, such as POST", name)
		}
	}
	return checkScopeText(operation)
}

func checkStatusKey(template string) error {
	names, rest := placeholdersOf(template)
	switch {
	case len(names) == 0 || strings.ContainsAny(rest, "{}") || slices.Contains(names, ""):
		return fmt.Errorf("%q does not say where the key is: write a placeholder such as {http.request.uri.query.key}, or leave the line out for the end of the path", template)
	case !printable(template):
		return fmt.Errorf("%q holds a control character: leave it out", template)
	}
	return nil
}

// statusBody is what a client sees of a record.
type statusBody struct {
	State          string        `json:"state"` // none, if there is no record
	OriginalStatus int           `json:"original_status,omitempty"`
	Resource       string        `json:"resource,omitempty"`
	ClaimedAt      *time.Time    `json:"claimed_at,omitempty"`
	SettledAt      *time.Time    `json:"settled_at,omitempty"`
	ReplayUntil    *time.Time    `json:"replay_until,omitempty"`
	Response       *responseBody `json:"response,omitempty"`
}

type responseBody struct {
	Header http.Header `json:"header"`
	Body   string      `json:"body"` // base64
}

const stateNone = "none"

func statusOf(record *store.Record) statusBody {
	body := statusBody{
		State: string(record.State), OriginalStatus: record.Status, Resource: record.Resource, ClaimedAt: &record.ClaimedAt,
	}
	if !record.SettledAt.IsZero() {
		body.SettledAt = &record.SettledAt
	}
	if !record.ReplayUntil.IsZero() {
		body.ReplayUntil = &record.ReplayUntil
	}
	return body
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (s *Status) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return caddyhttp.Error(http.StatusMethodNotAllowed, fmt.Errorf("the status of a key is read by GET"))
	}
	id, err := s.identify(r)
	if err == nil {
		err = s.answer(w, r, id)
	}
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		refused.log(s.log, id)
		return refused.write(w, s.Policy)
	}
	return err
}

// identify finds scope and key as the route itself does.
func (s *Status) identify(r *http.Request) (id store.Identity, err error) {
	scope, err := resolveScope(r, s.Tenant, s.Actor, s.Operation)
	if err != nil {
		return id, refuseScope(err)
	}
	// The last element as it is written: a key may hold a slash, as %2F.
	path := r.URL.EscapedPath()
	key, err := url.PathUnescape(path[strings.LastIndexByte(path, '/')+1:])
	if s.Key != "" {
		key, err = r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).ReplaceAll(s.Key, ""), nil
	}
	if err != nil || key == "" || !printable(key) || len(key) > maxKeyLength {
		return id, refuseKey(&KeyError{Reason: "is not in the request where this route looks for it"})
	}
	return store.Identity{Scope: scope, Key: s.app.storedKey(s.StoreKey, key)}, nil
}

func (s *Status) answer(w http.ResponseWriter, r *http.Request, id store.Identity) error {
	b, done, err := s.app.use()
	if err != nil {
		return refuseStore(err)
	}
	defer done()
	if err := s.app.proveSecret(r.Context(), b, s.StoreKey); err != nil {
		return refuseStore(err)
	}
	record, err := b.read(r.Context(), id)
	switch {
	case errors.Is(err, store.ErrNoRecord):
		return writeStatus(w, http.StatusNotFound, statusBody{State: stateNone})
	case err != nil:
		return refuseStore(err)
	}
	body := statusOf(record)
	if s.Response && record.Response != nil && r.URL.Query().Get("response") == "true" {
		body.Response = &responseBody{Header: record.Response.Header, Body: base64.StdEncoding.EncodeToString(record.Response.Body)}
	}
	if record.State == store.Executing {
		w.Header().Set("Retry-After", "1")
	}
	return writeStatus(w, http.StatusOK, body)
}

func writeStatus(w http.ResponseWriter, status int, body statusBody) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding status: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(encoded)))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(encoded)
	return nil
}

func parseStatus(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	status := new(Status)
	if err := status.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	return status, nil
}

// UnmarshalCaddyfile sets up the handler from its directive:
//
//	idempotency_status [<matcher>] {
//		tenant    <value>
//		actor     <value> | shared
//		operation <value>
//		key       <template>
//		store_key plain|digest
//		response
//		policy    <url>
//	}
func (s *Status) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive
	directive := d.Token()
	if d.NextArg() {
		return d.Errf("unexpected argument %q: idempotency_status takes a block of options; a matcher before it begins with / or @", d.Val())
	}
	if err := readBlock(d, block[*Status]{of: "idempotency_status", options: statusOptions}, s); err != nil {
		return err
	}
	if s.Actor == "" || s.Operation == "" {
		return errorAt(directive, s.check())
	}
	return nil
}

var statusOptions = map[string]readOption[*Status]{
	"tenant": func(s *Status, d *caddyfile.Dispenser) error { return one(d, &s.Tenant, scopePart) },
	"actor":  func(s *Status, d *caddyfile.Dispenser) error { return one(d, &s.Actor, scopePart) },
	"operation": func(s *Status, d *caddyfile.Dispenser) error {
		return one(d, &s.Operation, checked(checkStatusOperation))
	},
	"key":       func(s *Status, d *caddyfile.Dispenser) error { return one(d, &s.Key, checked(checkStatusKey)) },
	"store_key": func(s *Status, d *caddyfile.Dispenser) error { return one(d, &s.StoreKey, checked(checkStoreKey)) },
	"response":  func(s *Status, d *caddyfile.Dispenser) error { return flag(d, &s.Response) },
	"policy":    func(s *Status, d *caddyfile.Dispenser) error { return one(d, &s.Policy, checked(checkPolicy)) },
}
