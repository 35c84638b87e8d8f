package service

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shop is a service that listens, and a client that keeps its connections.
type shop struct {
	*Server
	t      *testing.T
	data   string
	client *http.Client
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, data: filepath.Join(t.TempDir(), "orders.jsonl")}
	s.open("127.0.0.1:0")
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (s *shop) open(addr string) {
	s.t.Helper()
	var err error
	s.Server, err = Start(addr, Config{Data: s.data})
	require.NoError(s.t, err)
	s.client = &http.Client{
		Transport:     &http.Transport{DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.t.Cleanup(s.client.CloseIdleConnections)
}

// restart comes back on the same port, with what the file holds.
func (s *shop) restart() {
	s.t.Helper()
	_ = s.Close()
	select {
	case <-s.Dead():
	case <-s.t.Context().Done():
		require.FailNow(s.t, "the service did not die")
	}
	s.open(s.Addr())
}

// answer is what came back, or the error instead of it. A body that broke off comes with both.
type answer struct {
	*http.Response
	body string
	err  error
}

func (a answer) order(t *testing.T) Order {
	t.Helper()
	require.NoError(t, a.err)
	var o Order
	require.NoError(t, json.Unmarshal([]byte(a.body), &o), a.body)
	return o
}

// send sends a request whose header lines are given as "Name: value".
func (s *shop) send(method, path, body string, header ...string) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.URL()+path, strings.NewReader(body))
	require.NoError(s.t, err)
	if strings.HasPrefix(body, "{") {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return s.do(r)
}

func (s *shop) do(r *http.Request) answer {
	response, err := s.client.Do(r)
	if err != nil {
		return answer{err: err}
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	return answer{response, string(body), err}
}

func (s *shop) post(body string, header ...string) answer {
	s.t.Helper()
	return s.send(http.MethodPost, "/orders", body, header...)
}

func (s *shop) get(path string) answer {
	s.t.Helper()
	return s.send(http.MethodGet, path, "")
}

// later sends in the background.
func (s *shop) later(body string, header ...string) <-chan answer {
	answers := make(chan answer, 1)
	go func() { answers <- s.post(body, header...) }()
	return answers
}

// awaitHeld returns when n requests are held.
func (s *shop) awaitHeld(n int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(s.t, s.WaitHeld(ctx, n), "requests held")
}

// counted checks the executions and orders of a reference.
func (s *shop) counted(reference string, executions, orders int) {
	s.t.Helper()
	stats := s.Stats()
	require.Equal(s.t, executions, stats.ByReference[reference], "executions of %s: %+v", reference, s.Executions())
	require.Equal(s.t, orders, stats.OrdersByReference[reference], "orders of %s: %+v", reference, s.Orders())
}
