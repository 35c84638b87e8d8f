package service

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Server is a Service that listens. When the service dies, the listener and all connections are closed with it.
type Server struct {
	*Service
	listener net.Listener
	http     *http.Server
}

// Start opens the ledger and listens. Port 0 takes a free port; to come back where its clients look for it, a service
// that starts again is given the old one's Addr.
func Start(addr string, cfg Config) (*Server, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s, err := New(cfg)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	server := &Server{s, listener, &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}}
	s.onDead = func() {
		_ = listener.Close() // Serve below may not have begun, and then the server does not know of it
		_ = server.http.Close()
	}
	go server.serve()
	return server, nil
}

// serve returns when the service has died, or makes it die: whatever ended it, nothing more may be committed that
// nobody can ask about.
func (s *Server) serve() {
	_ = s.http.Serve(s.listener)
	_ = s.Close()
}

// Addr is the address listened on, as host:port.
func (s *Server) Addr() string {
	return s.listener.Addr().String()
}

// URL is where a client on this machine finds the service.
func (s *Server) URL() string {
	addr, ok := s.listener.Addr().(*net.TCPAddr)
	if !ok {
		return "http://" + s.Addr()
	}
	if addr.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d", addr.Port)
	}
	return "http://" + addr.String()
}
