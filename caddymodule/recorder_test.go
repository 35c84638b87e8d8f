package caddymodule

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// record returns a recorder before a client that counts nothing as sent yet.
func record(limit int64) (rec *recorder, client *httptest.ResponseRecorder, settled *int) {
	client = httptest.NewRecorder()
	client.Header().Set("X-Outer", "1")
	rec = newRecorder(client, limit)
	settled = new(int)
	rec.settle = func() { *settled++ }
	rec.streams = func() {}
	return rec, client, settled
}

func TestNothingReachesTheClientBeforeTheOutcomeIsSettled(t *testing.T) {
	rec, client, settled := record(100)

	rec.Header().Set("Location", "/orders/1")
	rec.WriteHeader(201)
	_, _ = rec.Write([]byte("ok"))
	rec.Flush()
	_ = http.NewResponseController(rec).Flush()

	require.Empty(t, client.Header().Get("Location"))
	require.Empty(t, client.Body.String())
	require.False(t, client.Flushed)
	require.Zero(t, *settled)

	rec.send()
	require.Equal(t, 201, client.Code)
	require.Equal(t, "ok", client.Body.String())
	require.Equal(t, "/orders/1", client.Header().Get("Location"))
	require.Equal(t, "1", client.Header().Get("X-Outer"))
}

func TestResponseUpToTheLimitIsKept(t *testing.T) {
	rec, _, settled := record(4)
	_, _ = rec.Write([]byte("four"))

	require.Zero(t, *settled)
	require.Equal(t, "four", rec.body.String())
}

func TestResponseOverTheLimitIsSettledBeforeItsFirstByte(t *testing.T) {
	for name, write := range map[string]func(*recorder){
		"declared": func(rec *recorder) {
			rec.Header().Set("Content-Length", "8")
			_, _ = rec.Write([]byte("1234"))
			_, _ = rec.Write([]byte("5678"))
		},
		"found out": func(rec *recorder) {
			_, _ = rec.Write([]byte("1234"))
			_, _ = rec.Write([]byte("5678"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			rec, client, settled := record(4)
			rec.settle = func() {
				*settled++
				require.Empty(t, client.Body.String())
			}

			write(rec)

			require.Equal(t, 1, *settled)
			require.Equal(t, "12345678", client.Body.String())
			require.True(t, rec.whole())
		})
	}
}

func TestBodyShorterThanDeclaredIsNotWhole(t *testing.T) {
	rec, _, _ := record(100)
	rec.Header().Set("Content-Length", "5")
	_, _ = rec.Write([]byte("1234"))
	require.False(t, rec.whole())
}

func TestLengthOfABodyThatDoesNotComeTakesNoMemory(t *testing.T) {
	for _, status := range []int{204, 304} {
		rec, _, settled := record(4)
		rec.Header().Set("Content-Length", "9000000000000000000")

		rec.WriteHeader(status)

		require.Zero(t, *settled)
		require.Zero(t, rec.body.Cap())
		require.True(t, rec.whole())
	}
}

func TestInformationalResponsePassesAndLeavesNoTrace(t *testing.T) {
	rec, client, _ := record(100)

	rec.Header().Set("Link", "</style.css>")
	rec.WriteHeader(103)
	rec.Header().Del("Link") // as Caddy's proxy does
	rec.WriteHeader(201)
	rec.send()

	require.Equal(t, 201, rec.status)
	require.NotContains(t, rec.head, "Link")
	require.NotContains(t, client.Header(), "Link")
}

func TestSecondStatusIsIgnored(t *testing.T) {
	rec, _, _ := record(100)
	rec.WriteHeader(201)
	rec.WriteHeader(500)
	require.Equal(t, 201, rec.status)
}
