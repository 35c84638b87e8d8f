package caddymodule

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStoredHeadersAreThoseOfTheResult(t *testing.T) {
	before := http.Header{"Server": {"Caddy"}, "X-Outer": {"same"}, "Vary": {"Origin"}}
	head := http.Header{
		"Content-Type": {"application/json"}, "Location": {"/orders/1"}, "Etag": {`"1"`},
		"Link":    {"</a>; rel=a", "</b>; rel=b"},
		"Vary":    {"Origin", "Accept"}, // a line was added to what was there
		"X-Outer": {"same"},             // there before, and there again at a replay

		"Date": {"now"}, "Server": {"legacy"}, "Via": {"1.1 Caddy"}, "Set-Cookie": {"a=1", "b=2"},
		"Content-Length": {"5"}, "Transfer-Encoding": {"chunked"}, "Connection": {"close, X-Hop"}, "X-Hop": {"1"},
		"X-Ratelimit-Remaining": {"3"}, "X-Request-Id": {"r"}, "X-B3-Traceid": {"t"}, "Www-Authenticate": {"Basic"},
		"X-Nothing": {},
	}

	require.Equal(t, http.Header{
		"Content-Type": {"application/json"}, "Location": {"/orders/1"}, "Etag": {`"1"`},
		"Link": {"</a>; rel=a", "</b>; rel=b"},
		"Vary": {"Origin", "Accept"},
	}, newHeaderRules(nil, nil).stored(head, before))
}

func TestRouteChangesWhatIsStored(t *testing.T) {
	head := http.Header{
		"Set-Cookie": {"a=1"}, "X-Ratelimit-Limit": {"9"}, "Etag": {`"1"`}, "Content-Length": {"5"}, "Trailer": {"X"},
	}
	rules := newHeaderRules([]string{"set-cookie", "content-length", "trailer"}, []string{"etag"})

	require.Equal(t, http.Header{"Set-Cookie": {"a=1"}}, rules.stored(head, nil), "framing is never stored, even if asked for")
}
