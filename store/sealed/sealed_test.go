package sealed_test

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/sealed"
	"github.com/caddy-idempotency/caddy-idempotency/store/sqlite"
	"github.com/caddy-idempotency/caddy-idempotency/store/storetest"
)

func key(id string, fill byte) sealed.Key {
	k := sealed.Key{ID: id}
	for i := range k.Secret {
		k.Secret[i] = fill
	}
	return k
}

// A sealed engine is an engine.
func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Backend{
		Create: func(t testing.TB) func() store.Engine {
			path := filepath.Join(t.TempDir(), "records.db")
			return func() store.Engine {
				inner, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
				require.NoError(t, err)
				engine, err := sealed.Wrap(inner, []sealed.Key{key("k1", 1)})
				require.NoError(t, err)
				return engine
			}
		},
	})
}

var (
	first  = store.Identity{Scope: store.Scope{Tenant: "t", Actor: "alice", Operation: "o"}, Key: "K1"}
	second = store.Identity{Scope: store.Scope{Tenant: "t", Actor: "bob", Operation: "o"}, Key: "K1"}

	answer = store.Response{Header: http.Header{"Location": {"/orders/1"}, "Link": {"a", "b"}}, Body: []byte("secret\x00body")}
)

// vault is a store whose keys a test changes.
type vault struct {
	*testing.T
	inner store.Engine
}

func newVault(t *testing.T) *vault {
	inner, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "records.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inner.Close()) })
	return &vault{t, inner}
}

func (v *vault) with(keys ...sealed.Key) *store.Store {
	engine, err := sealed.Wrap(v.inner, keys)
	require.NoError(v, err)
	return store.New(engine)
}

func (v *vault) completes(s *store.Store, id store.Identity) {
	claim, _, err := s.Claim(v.Context(), id, store.Fingerprint{}, "", time.Minute)
	require.NoError(v, err)
	response := answer
	require.NoError(v, claim.Complete(v.Context(), store.Completion{Status: 201, Response: &response, ReplayFor: time.Hour}))
}

func (v *vault) shows(s *store.Store, id store.Identity) {
	record, err := s.Read(v.Context(), id)
	require.NoError(v, err)
	require.Equal(v, answer, *record.Response)
	_, held, err := s.Claim(v.Context(), id, store.Fingerprint{}, "", time.Minute)
	require.NoError(v, err)
	require.Equal(v, answer, *held.Response)
}

func (v *vault) refuses(s *store.Store, id store.Identity, why string) {
	var corrupt *store.CorruptError
	_, err := s.Read(v.Context(), id)
	require.ErrorAs(v, err, &corrupt)
	require.ErrorContains(v, err, why)
	_, _, err = s.Claim(v.Context(), id, store.Fingerprint{}, "", time.Minute)
	require.ErrorAs(v, err, &corrupt)
}

func TestResponseIsCiphertextInTheDatabase(t *testing.T) {
	v := newVault(t)
	v.completes(v.with(key("k1", 1)), first)

	record, err := v.inner.Read(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, http.Header{sealed.Header: {"k1"}}, record.Response.Header)
	require.NotContains(t, string(record.Response.Body), "secret")
	v.shows(v.with(key("k1", 1)), first)
}

func TestKeyIsRotatedByPuttingANewOneInFront(t *testing.T) {
	v := newVault(t)
	v.completes(v.with(key("k1", 1)), first)
	rotated := v.with(key("k2", 2), key("k1", 1))
	v.completes(rotated, second)

	v.shows(rotated, first)
	v.shows(rotated, second)
	v.shows(v.with(key("k2", 2)), second)
}

func TestResponseFromBeforeTheKeysIsShown(t *testing.T) {
	v := newVault(t)
	v.completes(v.with(), first)
	v.shows(v.with(key("k1", 1)), first)
}

func TestResponseWhoseKeyIsGoneIsAnErrorAndNeverAMiss(t *testing.T) {
	v := newVault(t)
	v.completes(v.with(key("k1", 1)), first)

	v.refuses(v.with(key("k2", 2)), first, `key "k1" is not configured`)
	v.refuses(v.with(), first, `key "k1" is not configured`)
	v.refuses(v.with(key("k1", 9)), first, "changed")
}

// tampering rewrites what the inner engine has of a record's response.
type tampering struct {
	store.Engine
	change func(*store.Record)
}

func (e tampering) Read(ctx context.Context, id store.Identity) (*store.Record, error) {
	record, err := e.Engine.Read(ctx, id)
	if err == nil {
		e.change(record)
	}
	return record, err
}

func TestCiphertextThatWasMovedOrChangedDoesNotOpen(t *testing.T) {
	v := newVault(t)
	s := v.with(key("k1", 1))
	v.completes(s, first)
	v.completes(s, second)
	other, err := v.inner.Read(t.Context(), second)
	require.NoError(t, err)

	for name, change := range map[string]func(*store.Record){
		"moved":     func(r *store.Record) { r.Response = other.Response },
		"flipped":   func(r *store.Record) { r.Response.Body[len(r.Response.Body)-1] ^= 1 },
		"nonce":     func(r *store.Record) { r.Response.Body[0] ^= 1 },
		"truncated": func(r *store.Record) { r.Response.Body = r.Response.Body[:len(r.Response.Body)-1] },
		"stump":     func(r *store.Record) { r.Response.Body = r.Response.Body[:5] },
		"empty":     func(r *store.Record) { r.Response.Body = []byte{} },
		"key id":    func(r *store.Record) { r.Response.Header = http.Header{sealed.Header: {"k9"}} },
		"no key id": func(r *store.Record) { r.Response.Header = http.Header{sealed.Header: {}} },
	} {
		t.Run(name, func(t *testing.T) {
			engine, err := sealed.Wrap(tampering{v.inner, change}, []sealed.Key{key("k1", 1)})
			require.NoError(t, err)
			_, err = engine.Read(t.Context(), first)
			var corrupt *store.CorruptError
			require.ErrorAs(t, err, &corrupt)
		})
	}
}

func TestKeyIDsAreToldApart(t *testing.T) {
	_, err := sealed.Wrap(nil, []sealed.Key{key("k1", 1), key("k1", 2)})
	require.Error(t, err)
	_, err = sealed.Wrap(nil, []sealed.Key{key("", 1)})
	require.Error(t, err)
}
