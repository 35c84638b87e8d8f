package caddymodule_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// order is the body of an order.
func order(amount int) string {
	return fmt.Sprintf(`{"item":"bolt","amount":%d,"currency":"CNY"}`, amount)
}

// with changes a request before it is sent.
type with func(*http.Request)

func header(name, value string) with { return func(r *http.Request) { r.Header.Add(name, value) } }

// fault asks the order service to go wrong; see its package comment.
func fault(text string) with { return header("X-Fault", text) }

func user(name string) with { return func(r *http.Request) { r.SetBasicAuth(name, "secret-of-"+name) } }

func path(p string) with { return func(r *http.Request) { r.URL.Path = p } }

func query(q string) with { return func(r *http.Request) { r.URL.RawQuery = q } }

func method(m string) with { return func(r *http.Request) { r.Method = m } }

func unsized() with { return func(r *http.Request) { r.ContentLength = -1 } }

// post sends an order with a key, and waits for the answer. The upstream counts it
// by the same word.
func (g *gateway) post(key, body string, changes ...with) answer {
	g.t.Helper()
	return g.do(g.t.Context(), key, body, changes...)
}

// later sends in the background. Its answer comes by the function returned.
func (g *gateway) later(key, body string, changes ...with) func() answer {
	g.t.Helper()
	answers := make(chan answer, 1)
	go func() { answers <- g.do(g.t.Context(), key, body, changes...) }()
	return sync.OnceValue(func() answer { return <-answers })
}

// hangUp sends a request whose client goes away when the function returned is called.
func (g *gateway) hangUp(key, body string, changes ...with) func() {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		g.do(ctx, key, body, changes...)
	}()
	return func() {
		g.story.tell("   %s: the client hangs up", key)
		cancel()
		<-gone
	}
}

func (g *gateway) do(ctx context.Context, key, body string, changes ...with) answer {
	a := answer{t: g.t}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			a.early = append(a.early, code)
			a.earlyLink = h.Values("Link")
			return nil
		},
	})
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.addr+"/orders", content)
	if err != nil {
		a.err = err
		return a
	}
	r.Header.Set("X-Client-Reference", strings.Trim(key, `"`))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	if strings.HasPrefix(body, "{") {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, change := range changes {
		change(r)
	}
	g.story.tell("-> %s: %s %s %s %s", key, r.Method, r.URL.RequestURI(), r.Header.Values("X-Fault"), short([]byte(body)))
	response, err := g.client.Do(r)
	if err != nil {
		g.story.tell("<- %s: %v", key, err)
		a.err = err
		return a
	}
	defer response.Body.Close()
	a.status, a.header, a.trailer = response.StatusCode, response.Header, response.Trailer
	a.body, a.err = io.ReadAll(response.Body)
	g.story.tell("<- %s: %d %v %s %v", key, a.status, a.header, short(a.body), a.err)
	return a
}

// raw sends bytes on a connection of their own, and returns what comes back until
// the gateway closes it.
func (g *gateway) raw(request string) string {
	g.t.Helper()
	return g.rawThen(request, func(*net.TCPConn) error { return nil })
}

// rawAndNoMore does so and closes its own side.
func (g *gateway) rawAndNoMore(request string) string {
	g.t.Helper()
	return g.rawThen(request, (*net.TCPConn).CloseWrite)
}

func (g *gateway) rawThen(request string, then func(*net.TCPConn) error) string {
	g.t.Helper()
	g.story.tell("-> %q", request)
	conn, err := net.Dial("tcp", g.addr)
	require.NoError(g.t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, request)
	require.NoError(g.t, err)
	require.NoError(g.t, then(conn.(*net.TCPConn)))
	response, err := io.ReadAll(conn)
	require.NoError(g.t, err)
	g.story.tell("<- %q", response)
	return string(response)
}

// answer is what came back, or the error instead of it. A body that broke off comes
// with both.
type answer struct {
	t         *testing.T
	status    int
	header    http.Header
	trailer   http.Header
	body      []byte
	early     []int // statuses of the informational responses before it
	earlyLink []string
	err       error
}

// problemAnswer is what says which refusal an answer is.
type problemAnswer struct {
	Status int
	Type   string
}

func problem(status int, slug string) problemAnswer { return problemAnswer{status, slug} }

// problem reads the refusal, and checks what all of them have in common.
func (a answer) problem() problemAnswer {
	a.t.Helper()
	return problem(a.status, a.details().slug())
}

// details are the members of a refusal.
type details struct {
	Type           string   `json:"type"`
	Title          string   `json:"title"`
	Status         int      `json:"status"`
	Detail         string   `json:"detail"`
	Retryable      *bool    `json:"retryable"`
	OriginalStatus int      `json:"original_status"`
	Resource       string   `json:"resource"`
	Differs        []string `json:"differs"`
}

func (d details) slug() string { return d.Type[strings.LastIndex(d.Type, "#")+1:] }

func (a answer) details() details {
	a.t.Helper()
	require.NoError(a.t, a.err)
	require.Equal(a.t, "application/problem+json", a.header.Get("Content-Type"), "status %d: %s", a.status, a.body)
	require.Regexp(a.t, `<[^>]+>; rel="describedby"`, strings.Join(a.header.Values("Link"), ", "))
	require.Equal(a.t, "no-store", a.header.Get("Cache-Control"))
	require.Empty(a.t, a.header.Get("Idempotency-Replayed"))
	var d details
	require.NoError(a.t, json.Unmarshal(a.body, &d), "%s", a.body)
	require.True(a.t, strings.HasSuffix(string(a.body), "}\n"), "%q", a.body)
	require.Equal(a.t, a.status, d.Status)
	require.Regexp(a.t, `^([A-Z].*\.)?$`, d.Detail)
	require.NotEmpty(a.t, d.Title)
	require.NotNil(a.t, d.Retryable)
	return d
}

// id of the order that was made.
func (a answer) id() string {
	a.t.Helper()
	require.NoError(a.t, a.err)
	var made struct{ ID string }
	require.NoError(a.t, json.Unmarshal(a.body, &made), "status %d: %s", a.status, a.body)
	return made.ID
}

func (a answer) isReplay() bool { return a.header.Get("Idempotency-Replayed") == "true" }

// first checks that the answer is the upstream's own.
func (a answer) first(status int) {
	a.t.Helper()
	require.NoError(a.t, a.err)
	require.Equal(a.t, status, a.status, "%s", a.body)
	require.False(a.t, a.isReplay(), "it is not a replay")
}

// replays checks that the answer is the stored one of the other.
func (a answer) replays(first answer) {
	a.t.Helper()
	require.NoError(a.t, a.err)
	require.Equal(a.t, first.status, a.status, "%s", a.body)
	require.Equal(a.t, string(first.body), string(a.body))
	require.True(a.t, a.isReplay(), "it is marked as a replay")
}

// large is a body of a JSON order of so many bytes.
func large(bytes int) string {
	head, tail := `{"item":"`, `"}`
	return head + strings.Repeat("b", bytes-len(head)-len(tail)) + tail
}
