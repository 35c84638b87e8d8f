package caddymodule

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// What a proxy in between answers with the right status is no proof of absence,
// and half a Location is none.
func TestProbeTellsAFindingFromAPageOfSomebodyElse(t *testing.T) {
	for body, want := range map[string]struct {
		found    finding
		resource string
		fails    bool
	}{
		`{"orders": [{"id": "a/b"}]}`: {found: findingExists, resource: "/orders/a%2Fb"},
		`{"orders": [{}]}`:            {found: findingExists},
		`{"orders": []}`:              {found: findingAbsent},
		`<html>Back soon</html>`:      {found: findingNothing, fails: true},
		``:                            {found: findingNothing, fails: true},
	} {
		t.Run(body, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
			defer server.Close()
			v := &Verifier{
				URL: server.URL + "/?ref={idempotency.key}", Location: "/orders/{body.orders.0.id}",
				Exists: Expectation{Status: 200, Path: "orders.#>0"}, Absent: &Expectation{Status: 200},
			}
			v.fillDefaults(0)
			require.NoError(t, v.check())
			require.NoError(t, v.provision())
			defer v.client.CloseIdleConnections()

			found, completion, err := v.probe(t.Context(), &store.Record{Identity: store.Identity{Key: "K1"}}, 1<<20)

			require.Equal(t, want.found, found)
			require.Equal(t, want.fails, err != nil, err)
			if found == findingExists {
				require.Equal(t, want.resource, completion.Resource)
			}
		})
	}
}
