package service

import (
	"context"
	"net/http"
	"sync"
)

// Config says where a service keeps its state and how it dies.
type Config struct {
	// Data is the file of the ledger. It is made, with its directory, if it does not exist.
	Data string

	// Die is called by the faults die and die-after; a program sets it to leave by os.Exit. If it is nil or returns,
	// the service dies in place, as Close says.
	Die func()
}

// Service is the order service as an http.Handler. Its methods may be called at the same time as it serves.
type Service struct {
	cfg    Config
	ledger *ledger
	armory armory
	gate   gate
	routes *http.ServeMux

	alive  context.Context // ends when the service dies: whatever waits, waits no longer
	end    context.CancelFunc
	dying  sync.Once
	dead   chan struct{}
	onDead func() // what a Server has to close; nil for a bare handler
}

// New opens the ledger and returns a service that goes on from it.
func New(cfg Config) (*Service, error) {
	l, err := openLedger(cfg.Data)
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, ledger: l, dead: make(chan struct{})}
	s.alive, s.end = context.WithCancel(context.Background())

	s.routes = http.NewServeMux()
	s.routes.HandleFunc("POST /orders", s.createOrder)
	s.routes.HandleFunc("PATCH /orders/{id}", s.changeOrder)
	s.routes.HandleFunc("GET /orders/{id}", s.showOrder)
	s.routes.HandleFunc("GET /orders", s.listOrders)
	s.routes.HandleFunc("GET /executions", s.listExecutions)
	s.routes.HandleFunc("GET /stats", s.showStats)
	s.routes.HandleFunc("GET /faults", s.showFaults)
	s.routes.HandleFunc("POST /faults", s.armFault)
	s.routes.HandleFunc("DELETE /faults", s.disarmFaults)
	s.routes.HandleFunc("GET /faults/waiting", s.awaitHeld)
	s.routes.HandleFunc("POST /faults/release", s.releaseHeld)
	return s, nil
}

// ServeHTTP answers a request, or drops its connection if the service is dead.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.alive.Err() != nil {
		panic(http.ErrAbortHandler)
	}
	s.routes.ServeHTTP(w, r)
}

// Close ends the service as kill -9 would: from here on nothing is committed, requests that wait lose their
// connection, and new ones are dropped. When it returns, another service may open the ledger. A test that serves it by
// httptest calls Close before it closes the server, or the server waits for what is held.
func (s *Service) Close() error {
	var err error
	s.dying.Do(func() {
		s.end()
		err = s.ledger.close()
		if s.onDead != nil {
			s.onDead()
		}
		close(s.dead)
	})
	return err
}

// Dead is closed once the service has died, by a fault or by Close, and its ledger is free for the next one.
func (s *Service) Dead() <-chan struct{} {
	return s.dead
}

func (s *Service) die() {
	if s.cfg.Die != nil {
		s.cfg.Die()
	}
	_ = s.Close()
}

// Stats returns the counts as they are now.
func (s *Service) Stats() Stats {
	return s.ledger.stats()
}

// WaitStats waits until the counts are as wanted, and returns them. What it returns with an error are the last ones.
func (s *Service) WaitStats(ctx context.Context, wanted func(Stats) bool) (Stats, error) {
	return s.ledger.waitStats(ctx, wanted)
}

// Orders returns all orders, oldest first.
func (s *Service) Orders() []Order {
	return s.ledger.find(func(Order) bool { return true })
}

// Executions returns all executions, in the order in which they were counted.
func (s *Service) Executions() []Execution {
	return s.ledger.allExecutions()
}

// Arm makes a fault strike requests to come.
func (s *Service) Arm(a Arming) error {
	return s.armory.arm(a)
}

// Disarm takes back whatever is still armed.
func (s *Service) Disarm() {
	s.armory.disarm()
}

// WaitHeld waits until at least n requests are held.
func (s *Service) WaitHeld(ctx context.Context, n int) error {
	return s.gate.wait(ctx, func() bool { return len(s.gate.held) >= n })
}

// Release lets the n oldest held requests go on, or all of them if n is 0, and returns how many it was.
func (s *Service) Release(n int) int {
	return s.gate.release(n)
}
