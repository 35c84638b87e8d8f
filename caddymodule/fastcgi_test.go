package caddymodule_test

import (
	"net"
	"net/http"
	"net/http/fcgi"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// php speaks FastCGI, as PHP does, and hands each answer over to a file server.
type php struct {
	addr     string
	executed atomic.Int32
}

func newPHP(t *testing.T) *php {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &php{addr: listener.Addr().String()}
	ended := make(chan error, 1)
	go func() {
		ended <- fcgi.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			p.executed.Add(1)
			w.Header().Set("X-Accel-Redirect", "/receipts/1")
			w.WriteHeader(http.StatusCreated)
		}))
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return p
}

// FastCGI asks the HTTP transport for nothing. All that the transport tells is
// that the file server, which comes afterwards, has received nothing.
func TestRequestThatFastCGIExecutedIsNotUnsentBecauseTheFileServerDoesNotListen(t *testing.T) {
	for name, body := range map[string]string{"with a body": order(100), "without a body": ""} {
		t.Run(name, func(t *testing.T) {
			onEveryStore(t, func(t *testing.T, s *testStore) {
				php := newPHP(t)
				g := configure(t, s, config{
					upstream: php.addr,
					proxy: `transport fastcgi
						@accel header X-Accel-Redirect *
						handle_response @accel {
							reverse_proxy ` + freeAddr(t) + `
						}`,
				})

				first := g.post("K1", body)
				again := g.post("K1", body)

				require.Equal(t, int32(1), php.executed.Load())
				require.Equal(t, "outcome-unknown", first.details().slug())
				require.Equal(t, problem(409, "outcome-unknown"), again.problem())
				require.Equal(t, "unknown", s.state(t, "K1"))
			})
		})
	}
}
