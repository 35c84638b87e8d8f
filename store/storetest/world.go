package storetest

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

const (
	// over is a duration after which the end has long come.
	over = -time.Hour

	// ample is one whose end no story sees.
	ample = time.Hour

	// all is a limit that no story's records reach.
	all = 1000

	// patience is how long a story waits for what must come.
	patience = 30 * time.Second
)

// world is what a story has: an engine on an empty database, and the protocol
// over it.
type world struct {
	*testing.T
	engine store.Engine
	store  *store.Store

	open   func() store.Engine
	shared bool
	other  *store.Store // a second instance, once it is asked for
}

func newWorld(t *testing.T, backend Backend) *world {
	w := &world{T: t, open: backend.Create(t), shared: backend.Shared}
	w.engine = w.start()
	w.store = store.New(w.engine)
	return w
}

// start opens an engine that is closed at the end, if not before.
func (w *world) start() store.Engine {
	w.Helper()
	engine := &closedOnce{Engine: w.open()}
	w.Cleanup(func() { require.NoError(w, engine.Close()) })
	return engine
}

// another is a second instance over the same database, or, where there can be
// but one, the first.
func (w *world) another() store.Engine {
	w.Helper()
	if w.shared {
		return w.start()
	}
	return w.engine
}

// closedOnce lets a story close an engine that the end would close again.
type closedOnce struct {
	store.Engine
	once sync.Once
	err  error
}

func (e *closedOnce) Close() error {
	e.once.Do(func() { e.err = e.Engine.Close() })
	return e.err
}

// wins claims the key and requires that it is won.
func (w *world) wins(key string) *store.Claim {
	w.Helper()
	return w.winsFor(key, ample)
}

func (w *world) winsFor(key string, lease time.Duration) *store.Claim {
	w.Helper()
	claim, held, err := w.store.Claim(w.Context(), identity(key), fingerprint(key), "", lease)
	require.NoError(w, err)
	require.Nil(w, held, "the record is there already")
	require.NotNil(w, claim)
	return claim
}

// loses claims the key, requires that it is not won, and returns the record.
func (w *world) loses(key string) *store.Record {
	w.Helper()
	claim, held, err := w.store.Claim(w.Context(), identity(key), fingerprint(key), "", ample)
	require.NoError(w, err)
	require.Nil(w, claim, "the key was won by a second claimant")
	require.NotNil(w, held)
	return held
}

// winsNatural claims the key for a business identity.
func (w *world) winsNatural(id store.Identity, naturalKey string) *store.Claim {
	w.Helper()
	claim, held, err := w.store.Claim(w.Context(), id, fingerprint(id.Key), naturalKey, ample)
	require.NoError(w, err)
	require.Nil(w, held, "the record is there already")
	require.NotNil(w, claim)
	return claim
}

// unknown makes a record whose outcome is unknown, and returns it with its claim.
func (w *world) unknown(key string) (*store.Claim, *store.Record) {
	w.Helper()
	claim := w.wins(key)
	require.NoError(w, claim.MarkUnknown(w.Context(), store.Doubt{Status: http.StatusBadGateway, Reason: "timeout"}))
	return claim, w.record(key)
}

// unknownOf is the same at the engine's own level.
func (w *world) unknownOf(d store.Draft) *store.Record {
	w.Helper()
	won, _, err := w.engine.Claim(w.Context(), d)
	require.NoError(w, err)
	require.True(w, won)
	require.NoError(w, w.engine.MarkUnknown(w.Context(), d.Identity, d.Token, store.Doubt{Reason: "timeout"}))
	return w.recordOf(d.Identity)
}

func (w *world) completes(claim *store.Claim, completion store.Completion) {
	w.Helper()
	require.NoError(w, claim.Complete(w.Context(), completion))
}

// record is what is there, nil if nothing is.
func (w *world) record(key string) *store.Record {
	w.Helper()
	return w.recordOf(identity(key))
}

func (w *world) recordOf(id store.Identity) *store.Record {
	w.Helper()
	record, err := w.engine.Read(w.Context(), id)
	if err != nil {
		require.ErrorIs(w, err, store.ErrNoRecord)
		return nil
	}
	require.Equal(w, id, record.Identity)
	return record
}

// state is the record's, "" if there is none.
func (w *world) state(key string) store.State {
	w.Helper()
	if record := w.record(key); record != nil {
		return record.State
	}
	return ""
}

func (w *world) states(keys ...string) map[string]store.State {
	w.Helper()
	states := make(map[string]store.State)
	for _, key := range keys {
		states[key] = w.state(key)
	}
	return states
}

// sweep is what time does in the background, in one of its three forms.
type sweep func(context.Context, int) (int, error)

// moves requires that a sweep moves as many records as it should.
func (w *world) moves(want int, sweep sweep, limit int) {
	w.Helper()
	moved, err := sweep(w.Context(), limit)
	require.NoError(w, err)
	require.Equal(w, want, moved, "records moved by the sweep")
}

// tick waits until the database's clock shows another time, also one that counts
// milliseconds.
func (w *world) tick(record *store.Record) {
	w.Helper()
	w.until("the clock goes on", func() bool { return w.recordOf(record.Identity).Now.Sub(record.Now) > time.Millisecond })
}

// until asks until the answer is yes.
func (w *world) until(what string, done func() bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for !done() {
		require.NoError(w, ctx.Err(), "waited in vain: "+what)
	}
}

// unchanged requires that two readings show the same record.
func (w *world) unchanged(before, after *store.Record, why string) {
	w.Helper()
	if before == nil || after == nil {
		require.Equal(w, before, after, why)
		return
	}
	b, a := *before, *after
	b.Now, a.Now = time.Time{}, time.Time{} // of the reading, not of the record
	require.Equal(w, b, a, why)
}

func identity(key string) store.Identity {
	return store.Identity{
		Scope: store.Scope{Tenant: "acme", Actor: "alice", Operation: "create-order"},
		Key:   key,
	}
}

func fingerprint(payload string) store.Fingerprint {
	return store.Fingerprint{Algorithm: 1, Version: "orders/v1", Sum: sha256.Sum256([]byte(payload))}
}

// draft is a claim at the engine's own level, where a story chooses the token.
func draft(key string, token store.Token) store.Draft {
	return store.Draft{Identity: identity(key), Fingerprint: fingerprint(key), Token: token, Lease: ample}
}

// created is an ordinary answer.
func created(body string) store.Completion {
	return store.Completion{
		Status:   http.StatusCreated,
		Resource: "/orders/1",
		Response: &store.Response{
			Header: http.Header{"Content-Type": {"application/json"}, "Location": {"/orders/1"}},
			Body:   []byte(body),
		},
		ReplayFor: ample,
	}
}
