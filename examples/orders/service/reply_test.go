package service

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnswerFaultsStrikeAfterTheCommit(t *testing.T) {
	for _, fault := range []string{
		"status", "status:409", "status:304", "binary", "huge:1000", "gzip", "cookies", "repeat", "hints", "break", "dribble:0s",
	} {
		s := newShop(t)
		s.post(`{"ref":"K1"}`, "X-Fault: "+fault)
		s.counted("K1", 1, 1)
	}
}

func TestStatusDecidesWhatGoesWithIt(t *testing.T) {
	s := newShop(t)
	for _, c := range []struct {
		fault    string
		status   int
		location bool
		body     string
	}{
		{"status", 500, false, "status 500 by a fault"},
		{"status:409", 409, false, "status 409 by a fault"},
		{"status:202", 202, true, `"id":"ord-`},
		{"status:204", 204, true, ""},
		{"status:304", 304, true, ""},
	} {
		got := s.post("", "X-Fault: "+c.fault)
		require.NoError(t, got.err, c.fault)
		require.Equal(t, c.status, got.StatusCode)
		require.Equal(t, c.location, got.Header.Get("Location") != "", c.fault)
		require.Contains(t, got.body, c.body)
		require.Equal(t, c.body == "", got.body == "", c.fault)
	}
}

func TestBreakEndsInTheMiddleOfTheBody(t *testing.T) {
	whole := len(newShop(t).post("").body)
	for fault, length := range map[string]int64{"break": int64(whole), "break, chunked": -1} {
		got := newShop(t).post("", "X-Fault: "+fault)
		require.ErrorIs(t, got.err, io.ErrUnexpectedEOF, fault)
		require.Equal(t, http.StatusCreated, got.StatusCode)
		require.Equal(t, "/orders/ord-1", got.Header.Get("Location"))
		require.Equal(t, length, got.ContentLength)
		require.Len(t, got.body, whole/2)
	}
}

func TestHugeAnswerIsExactAndStillJSON(t *testing.T) {
	const size = 5 << 20
	s := newShop(t)
	for fault, length := range map[string]int64{"huge:5242880": size, "huge:5242880, chunked": -1} {
		got := s.post("", "X-Fault: "+fault)
		require.NoError(t, got.err)
		require.Equal(t, length, got.ContentLength)
		require.Len(t, got.body, size)

		var order struct{ ID, Padding string }
		require.NoError(t, json.Unmarshal([]byte(got.body), &order))
		require.NotEmpty(t, order.ID)
		require.Equal(t, strings.Repeat("0123456789", size/10)[:len(order.Padding)], order.Padding)
	}
	require.NotEmpty(t, s.post("", "X-Fault: huge:1").order(t).ID, "never less than the order")
}

func TestBinaryAnswerHasAllBytes(t *testing.T) {
	got := newShop(t).post("", "X-Fault: binary")
	require.Len(t, got.body, 256)
	for i := range 256 {
		require.Equal(t, byte(i), got.body[i])
	}
	require.Equal(t, "application/octet-stream", got.Header.Get("Content-Type"))
}

func TestHeaderLinesAreRepeated(t *testing.T) {
	got := newShop(t).post("", "X-Fault: repeat, cookies:3, header:Via=1.1 legacy, header:content-type=text/plain")
	require.Equal(t, []string{"one", "two", "one"}, got.Header.Values("X-Legacy"))
	require.Len(t, got.Header.Values("Link"), 2)
	require.Len(t, got.Cookies(), 3)
	require.Equal(t, "1.1 legacy", got.Header.Get("Via"))
	require.Equal(t, []string{"text/plain"}, got.Header.Values("Content-Type"))
}

func TestEarlyHintsComeBeforeTheAnswer(t *testing.T) {
	s := newShop(t)
	var early []int
	var links []string
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		early, links = append(early, code), h.Values("Link")
		return nil
	}}
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, s.URL()+"/orders", nil)
	require.NoError(t, err)
	r.Header.Set("X-Fault", "hints")
	got := s.do(r)

	require.Equal(t, []int{http.StatusEarlyHints}, early)
	require.Len(t, links, 1)
	require.Equal(t, http.StatusCreated, got.StatusCode)
	require.Empty(t, got.Header.Values("Link"), "the hints stay with the hints")
}

func TestGzipComesAskedForOrNot(t *testing.T) {
	for _, c := range []struct {
		fault, accept string
		coded         bool
	}{
		{"gzip", "identity", true},
		{"gzip-accepted", "identity", false},
		{"gzip-accepted", "", false},
		{"gzip-accepted", "br, gzip;q=0.5", true},
		{"gzip-accepted", "gzip; q=0, br", false},
	} {
		got := newShop(t).post("", "X-Fault: "+c.fault, "Accept-Encoding: "+c.accept)
		require.NoError(t, got.err)
		require.Equal(t, c.coded, got.Header.Get("Content-Encoding") == "gzip", "%+v", c)
		require.Equal(t, c.fault == "gzip-accepted", got.Header.Get("Vary") == "Accept-Encoding")
		if c.coded {
			z, err := gzip.NewReader(strings.NewReader(got.body))
			require.NoError(t, err)
			plain, err := io.ReadAll(z)
			require.NoError(t, err)
			got.body = string(plain)
		}
		require.Equal(t, "ord-1", got.order(t).ID)
	}
}

func TestHoldBodySendsHalfAndWaits(t *testing.T) {
	s := newShop(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/orders", nil)
	require.NoError(t, err)
	r.Header.Set("X-Fault", "hold-body")
	response, err := s.client.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()

	half := make([]byte, response.ContentLength/2)
	_, err = io.ReadFull(response.Body, half)
	require.NoError(t, err)
	s.awaitHeld(1)

	s.Release(0)
	rest, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.True(t, json.Valid(append(half, rest...)))
}

func TestDribbleSendsAByteAtATime(t *testing.T) {
	got := newShop(t).post("", "X-Fault: dribble:10us")
	require.Equal(t, "ord-1", got.order(t).ID)
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}
