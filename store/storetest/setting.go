package storetest

import (
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// settings are what programs agree on.
var settings = []story{
	{"the first value of a setting stands", func(w *world) {
		require.Equal(w, "first", w.pin("secret", "first"))
		require.Equal(w, "first", w.pin("secret", "second"))
		require.Equal(w, "first", w.pin("secret", "first"))
		require.Equal(w, "another", w.pin("another", "another"))
	}},

	{"a setting is there for every instance", func(w *world) {
		require.Equal(w, "first", w.pin("secret", "first"))
		held, err := w.another().Pin(w.Context(), "secret", []byte("second"))
		require.NoError(w, err)
		require.Equal(w, "first", string(held))
	}},

	{"of settings at once one stands", func(w *world) {
		const callers = 8
		engines := []store.Engine{w.engine, w.another()}
		held := make([]string, callers)
		var done sync.WaitGroup
		for n := range callers {
			done.Go(func() {
				value, err := engines[n%2].Pin(w.Context(), "secret", []byte{byte('a' + n)})
				if err != nil {
					w.Errorf("caller %d: %v", n, err)
				}
				held[n] = string(value)
			})
		}
		done.Wait()
		for _, value := range held {
			require.Equal(w, held[0], value)
		}
		require.NotEmpty(w, held[0])
	}},
}

func (w *world) pin(name, value string) string {
	w.Helper()
	held, err := w.store.Pin(w.Context(), name, []byte(value))
	require.NoError(w, err)
	return string(held)
}
