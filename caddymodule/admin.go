package caddymodule

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// AdminAPI is the operators' side: routes of Caddy's admin endpoint, under Caddy's
// own access rules, on the store of the configuration that is in force. They find
// unknown outcomes and decide about them; `caddy idempotency` talks to it.
//
// A key goes in and out in bodies alone, never in a path or a query: Caddy logs the
// URI of every admin request.
type AdminAPI struct{}

// CaddyModule returns the Caddy module information.
func (AdminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.idempotency",
		New: func() caddy.Module { return new(AdminAPI) },
	}
}

const adminBase = "/idempotency/"

// endpoint answers one path of the API with JSON.
type endpoint struct {
	path   string
	method string
	serve  func(d desk, w http.ResponseWriter, r *http.Request) (any, error)
}

var endpoints = []endpoint{
	{adminBase + "records", http.MethodGet, adminList},
	{adminBase + "show", http.MethodPost, adminShow},
	{adminBase + "resolve", http.MethodPost, adminResolve},
	{adminBase + "release", http.MethodPost, adminRelease},
	{adminBase + "stats", http.MethodGet, adminStats},
}

// Routes implements caddy.AdminRouter.
func (AdminAPI) Routes() []caddy.AdminRoute {
	routes := []caddy.AdminRoute{{Pattern: adminBase, Handler: caddy.AdminHandlerFunc(adminElsewhere)}}
	for _, e := range endpoints {
		routes = append(routes, caddy.AdminRoute{Pattern: e.path, Handler: e})
	}
	return routes
}

// adminElsewhere answers for a path that there is not.
func adminElsewhere(w http.ResponseWriter, _ *http.Request) error {
	var known []string
	for _, e := range endpoints {
		known = append(known, e.method+" "+e.path)
	}
	writeAdminError(w, &adminError{adminProblem: adminNoEndpoint, text: "there is nothing here: ask for one of " + strings.Join(known, ", ")})
	return nil
}

// ServeHTTP implements caddy.AdminHandler. It answers errors by itself: Caddy would
// log what it is given, and knows no type.
func (e endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	answer, err := e.answer(w, r)
	if err != nil {
		writeAdminError(w, adminErrorOf(err))
		return nil
	}
	writeAdminJSON(w, http.StatusOK, answer)
	return nil
}

func (e endpoint) answer(w http.ResponseWriter, r *http.Request) (any, error) {
	if r.Method != e.method {
		w.Header().Set("Allow", e.method)
		return nil, &adminError{adminProblem: adminWrongMethod, text: "method " + r.Method + " is not for this path: use " + e.method}
	}
	app, err := runningApp()
	if err != nil {
		return nil, err
	}
	b, done, err := app.use()
	if err != nil {
		return nil, err
	}
	defer done()
	return e.serve(desk{app, b}, w, r)
}

// runningApp is the app of the configuration in force, which is asked for anew each
// time: the admin endpoint is up before the apps are, and one configuration's may
// outlive it.
func runningApp() (*App, error) {
	app, err := caddy.ActiveContext().AppIfConfigured("idempotency")
	switch {
	case errors.Is(err, caddy.ErrNotConfigured):
		return nil, &adminError{adminProblem: adminNotConfigured, text: "the running configuration does not use idempotency: ask the Caddy that does, or load a configuration with the directive in it"}
	case err != nil:
		return nil, err
	}
	return app.(*App), nil
}

// desk is where one request of an operator's is served.
type desk struct {
	app     *App
	backend *backend
}

// ask makes calls to the store for an operator, in the time of one call.
func ask[T any](ctx context.Context, d desk, call func(context.Context, *store.Store) (T, error)) (T, error) {
	s := d.backend.store.Load()
	if s == nil {
		var none T
		return none, errNotOpen
	}
	ctx, cancel := context.WithTimeout(ctx, d.backend.timeout)
	defer cancel()
	return call(ctx, s)
}

// statsView is the answer of stats.
type statsView struct {
	Store         string                `json:"store"` // as Caddy's log names it
	Records       map[store.State]int64 `json:"records"`
	OldestUnknown int64                 `json:"oldest_unknown_seconds"` // 0 if there is none
}

func adminStats(d desk, _ http.ResponseWriter, r *http.Request) (any, error) {
	stats, err := ask(r.Context(), d, func(ctx context.Context, s *store.Store) (store.Stats, error) { return s.Stats(ctx) })
	if err != nil {
		return nil, err
	}
	return statsView{Store: d.backend.opener.Place(), Records: stats.Records, OldestUnknown: int64(stats.OldestUnknown.Seconds())}, nil
}

func writeAdminJSON(w http.ResponseWriter, status int, value any) {
	encoded, err := json.Marshal(value)
	if err != nil {
		status, encoded = http.StatusInternalServerError, []byte(`{"error":"encoding answer"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(slices.Concat(encoded, []byte("\n")))
}

// Interface guards
var (
	_ caddy.AdminRouter  = AdminAPI{}
	_ caddy.AdminHandler = endpoint{}
)
