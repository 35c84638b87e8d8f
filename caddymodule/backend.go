package caddymodule

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/sealed"
)

// backend is a store with the background work that belongs to it. It outlives the
// configuration that opened it for as long as another one uses the same store, or
// a request of it is in flight.
type backend struct {
	opener  StoreOpener
	timeout time.Duration // of one store call, with all its repetitions
	waits   waits
	settler *settler
	sweep   atomic.Int64 // time.Duration between two sweeps

	verifiers atomic.Pointer[verifiers] // of the configuration in force

	store atomic.Pointer[store.Store] // nil until it is open

	mu     sync.Mutex
	live   []*App       // configurations that use it, the eldest first; see live.go
	keys   []sealed.Key // of all of them
	sealed *sealed.Engine

	ctx  context.Context // of the background work
	stop context.CancelFunc
	work sync.WaitGroup
}

// StoreOpener is a module of the namespace idempotency.stores.
type StoreOpener interface {
	// Open opens the store. It is called when the app starts, never at
	// provisioning, and again later if its error says that the store cannot be
	// reached for now (an EngineError that is Unavailable).
	Open(ctx context.Context) (store.Engine, error)

	// Place names the store. Two configurations with one place share it.
	Place() string

	// CallTimeout bounds each call.
	CallTimeout() time.Duration
}

// backends in use, by place.
var backends = caddy.NewUsagePool()

// openRetry is the pause between two tries to open a store that is not there.
const openRetry = time.Second

// newBackend opens the store. If it cannot be reached, opening goes on in the
// background: a gateway whose database is down answers 503, and the other sites
// of the same Caddy go on.
func newBackend(opener StoreOpener, keys []sealed.Key) (*backend, error) {
	b := &backend{opener: opener, keys: keys, timeout: opener.CallTimeout(), settler: newSettler()}
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.sweep.Store(int64(DefaultSweepEvery)) // until the app says how often

	err := b.open()
	var engine *store.EngineError
	switch {
	case err == nil:
	case errors.As(err, &engine) && engine.Failure == store.Unavailable:
		backendLog().Error("store cannot be reached; requests get 503 until it can", zap.Error(err))
	default:
		b.stop()
		return nil, err
	}
	b.work.Go(b.run)
	return b, nil
}

// backendLog is the logger of whatever configuration is in force.
func backendLog() *zap.Logger { return caddy.Log().Named("idempotency") }

func (b *backend) open() error {
	engine, err := b.opener.Open(b.ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	wrapped, err := sealed.Wrap(engine, b.keys)
	if err != nil {
		return errors.Join(err, engine.Close())
	}
	b.sealed = wrapped
	b.store.Store(store.New(measured{b.sealed}))
	return nil
}

// run is the background work.
func (b *backend) run() {
	for b.store.Load() == nil {
		if !pause(b.ctx, openRetry) {
			return
		}
		if err := b.open(); err == nil {
			backendLog().Info("store is open")
		} else {
			backendLog().Warn("store still cannot be opened", zap.Error(err))
		}
	}
	b.work.Go(func() { b.settler.run(b.ctx, b.timeout) })
	b.work.Go(b.verifyForever)
	b.sweepForever()
}

// Destruct implements caddy.Destructor: nobody uses the store any more. What is
// still to be settled gets a last try.
func (b *backend) Destruct() error {
	b.stop()
	b.work.Wait()
	s := b.store.Load()
	if s == nil {
		return nil
	}
	b.settler.finish(b.timeout)
	return s.Close()
}

// errNotOpen says that the store has not been reached since the start.
var errNotOpen = &store.EngineError{Op: "opening store", Failure: store.Unavailable, Err: errors.New("it is not open yet")}

// claim competes for the record. The client cannot cancel it: a claim that was
// given up halfway would leave a record behind that nobody settles.
func (b *backend) claim(ctx context.Context, id store.Identity, fp store.Fingerprint, natural string, lease time.Duration, quotas []store.Quota) (*store.Claim, *store.Record, error) {
	s := b.store.Load()
	if s == nil {
		return nil, nil, errNotOpen
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.timeout)
	defer cancel()
	claim, held, err := s.Claim(ctx, id, fp, natural, lease, quotas...)
	return claim, held, err
}

// read reads a record. The client cannot cancel it: that would look like a failure
// of the store, and costs the connection that it is read on.
func (b *backend) read(ctx context.Context, id store.Identity) (*store.Record, error) {
	s := b.store.Load()
	if s == nil {
		return nil, errNotOpen
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.timeout)
	defer cancel()
	return s.Read(ctx, id)
}

// has reports whether this process knows of the record without asking the store: its
// request is being executed here, or was, and the outcome waits for the store.
func (b *backend) has(id store.Identity) bool {
	return b.waits.watch(id) != nil || b.settler.holds(id)
}

// settle makes one write of an outcome, detached from the client, and reports
// whether it is done. If not, the settler goes on with it.
func (b *backend) settle(j job) bool {
	err := j.try(context.Background(), b.timeout) // neither the client's, nor one that ends with the configuration
	if err == nil {
		return true
	}
	j.log().Error("outcome is not stored yet", zap.Error(err))
	b.settler.add(j)
	return false
}

// pause waits, and reports false if the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// pauseBetweenSweeps waits, and reports false if the backend is to stop. The jitter
// parts instances that were started together.
func (b *backend) pauseBetweenSweeps() bool {
	every := time.Duration(b.sweep.Load())
	return pause(b.ctx, every/2+rand.N(every))
}
