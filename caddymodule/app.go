package caddymodule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"go.uber.org/zap"

	"github.com/caddy-idempotency/caddy-idempotency/store/sealed"
)

// App owns the store and the background work for all routes.
type App struct {
	// Store keeps the records, such as
	// `{"engine": "postgres", "dsn": "{env.DATABASE_URL}"}`. Default: `sqlite`, one
	// file in Caddy's data directory, for one instance.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=idempotency.stores inline_key=engine"`

	// SweepEvery is the pause between two sweeps, which is how late the passing of
	// time may be noticed. From 1ms to 1h, such as `"10s"`. Default: 5s.
	SweepEvery caddy.Duration `json:"sweep_every,omitempty"`

	// Secret is the key of digests: of the clients' keys where a route says
	// `store_key digest`, and of what names the members that differ in a 422. By a
	// placeholder, such as `{env.IDEMPOTENCY_SECRET}`; 16 bytes at least. It never
	// changes: under another one, no key that was digested before would be found
	// again, and such a route refuses all requests with 503. Default: none.
	Secret string `json:"secret,omitempty"`

	// Encrypt lists the keys that stored responses are encrypted with (AES-256-GCM).
	// The first one encrypts, all of them decrypt: a key is rotated by adding a new
	// one in front, and taken out when no response under it can be replayed any
	// more. An example: `[{"id": "2026-11", "key": "{env.IDEMPOTENCY_KEY}"}]`.
	// Default: none, responses are stored as they are.
	Encrypt []EncryptKey `json:"encrypt,omitempty"`

	ctx    caddy.Context
	opener StoreOpener
	log    *zap.Logger
	usage  usage

	backend   *backend // nil until it has started
	verifiers verifiers
	secret    []byte
	digests   bool        // a route digests its clients' keys
	proved    atomic.Bool // that they are those of the store, see proveSecret
	keys      []sealed.Key
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "idempotency",
		New: func() caddy.Module { return new(App) },
	}
}

// Provision loads the store's module. It does not open the store: `caddy validate`
// provisions too, and needs no database.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx, a.log = ctx, ctx.Logger()
	a.usage.begun = make(chan struct{})
	if err := rangeSweep.checkSet("sweep_every", a.SweepEvery); err != nil {
		return err
	}
	if a.SweepEvery == 0 {
		a.SweepEvery = caddy.Duration(DefaultSweepEvery)
	}
	if a.StoreRaw == nil {
		a.StoreRaw = caddyconfig.JSONModuleObject(new(SQLiteStore), "engine", "sqlite", nil)
	}
	if err := a.provisionSecrets(); err != nil {
		return err
	}
	module, err := ctx.LoadModule(a, "StoreRaw")
	if err != nil {
		return fmt.Errorf("loading store: %w", err)
	}
	opener, ok := module.(StoreOpener)
	if !ok {
		return fmt.Errorf("module %T is not a store", module)
	}
	a.opener = opener
	return registerMetrics(ctx.GetMetricsRegistry())
}

// Start opens the store, or shares the one that a former configuration opened.
func (a *App) Start() error {
	if err := checkNested(a.ctx); err != nil {
		return err
	}
	place := a.opener.Place()
	value, shared, err := backends.LoadOrNew(place, func() (caddy.Destructor, error) {
		return newBackend(a.opener, a.keys)
	})
	if err != nil {
		return fmt.Errorf("opening idempotency store: %w", err)
	}
	b := value.(*backend)
	a.backend = b
	b.join(a)
	a.usage.begin(b, func() {
		if _, err := backends.Delete(place); err != nil {
			backendLog().Error("closing store", zap.Error(err))
		}
	})
	a.reportSecret(b)
	a.warnOfProxies(a.ctx)
	a.log.Info("idempotency store in use", zap.String("store", place), zap.Bool("shared_with_former_configuration", shared))
	return nil
}

// addVerifier notes who verifies the unknown outcomes of an operation. It is called
// while the routes are provisioned, one after another.
func (a *App) addVerifier(h *Handler) error {
	switch other := a.verifiers[h.Operation]; {
	case other == nil:
	case bytes.Equal(caddyconfig.JSON(other, nil), caddyconfig.JSON(h, nil)):
		return nil // one route in two servers, such as those of http:// and https://
	default:
		return fmt.Errorf("verify: operation %s is verified by two routes: give each an operation of its own", h.Operation)
	}
	if a.verifiers == nil {
		a.verifiers = make(verifiers)
	}
	a.verifiers[h.Operation] = h
	return nil
}

// Stop implements caddy.App. Requests may still be in flight; see Cleanup.
func (a *App) Stop() error { return nil }

// Cleanup gives the store back when the last request of this configuration is
// done. Caddy calls it while old requests are still in flight.
func (a *App) Cleanup() error {
	if a.backend != nil {
		a.backend.leave(a)
	}
	a.usage.end()
	return nil
}

// use takes the backend for one request; done gives it back.
func (a *App) use() (b *backend, done func(), err error) { return a.usage.take() }

// usage counts the requests of one configuration that use its backend.
type usage struct {
	begun    chan struct{} // closed by begin
	mu       sync.Mutex
	backend  *backend // nil before begin and after the last use
	release  func()
	requests int
	ended    bool
}

func (u *usage) begin(b *backend, release func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.backend, u.release = b, release
	close(u.begun)
}

// startPatience bounds the wait for begin: Caddy starts its apps in no order, so
// that a site may serve before its store is there.
const startPatience = 5 * time.Second

func (u *usage) take() (*backend, func(), error) {
	select {
	case <-u.begun:
	default: // the first moments of a configuration
		select {
		case <-u.begun:
		case <-time.After(startPatience):
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.backend == nil {
		return nil, nil, errNotOpen
	}
	u.requests++
	return u.backend, u.done, nil
}

func (u *usage) done() {
	u.mu.Lock()
	u.requests--
	u.mu.Unlock()
	u.releaseIfLast()
}

func (u *usage) end() {
	u.mu.Lock()
	u.ended = true
	u.mu.Unlock()
	u.releaseIfLast()
}

// releaseIfLast releases outside of the lock, and once.
func (u *usage) releaseIfLast() {
	u.mu.Lock()
	var release func()
	if u.ended && u.requests == 0 {
		release, u.release, u.backend = u.release, nil, nil
	}
	u.mu.Unlock()
	if release != nil {
		release()
	}
}

// Interface guards
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
