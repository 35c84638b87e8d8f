package caddymodule

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

const (
	// settlerMemory bounds the responses that wait for the store, in bytes. What
	// comes beyond it is given up: its record becomes unknown with its lease.
	settlerMemory = 64 << 20
	settlerJobs   = 100_000

	// settlerClaims is how many of them may be claims that were never proved. A
	// store that is away makes one with every request, and they must not take the
	// room of outcomes, which are of requests that were executed.
	settlerClaims = 10_000

	settlerFirstPause = 100 * time.Millisecond
	settlerLastPause  = 5 * time.Second
)

// settler goes on with writes that the store did not take. Each carries its claim's
// token, so that it can be repeated, and come late, without harm.
type settler struct {
	mu     sync.Mutex
	jobs   []job
	size   int
	claims int // how many of the jobs are claims that were never proved
	added  chan struct{}
}

// job is one write of an outcome.
type job struct {
	write func(context.Context) error
	size  int // of the response that it holds, in bytes
	log   func() *zap.Logger

	// claim says that it takes back a claim that was never proved. There is no
	// outcome, and nothing is lost but time if it is given up.
	claim bool
}

// try makes the write. Its error says that the outcome is not durable yet.
func (j job) try(timeout time.Duration) error {
	// Not the client's context, nor one that ends with the configuration.
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := j.write(ctx)
	var lost *store.ClaimLostError
	if errors.As(err, &lost) {
		// An operator or a verifier was faster. What they decided stands.
		j.log().Error("record was settled by somebody else meanwhile", zap.Error(err))
		return nil
	}
	return err
}

func newSettler() *settler { return &settler{added: make(chan struct{}, 1)} }

// add takes a write over.
func (s *settler) add(j job) {
	s.mu.Lock()
	full := s.size+j.size > settlerMemory || len(s.jobs) >= settlerJobs || j.claim && s.claims >= settlerClaims
	if !full {
		s.put(j)
		if !j.claim {
			metrics.unsettled.Inc() // until it is written: one that is being tried counts, too
		}
	}
	s.mu.Unlock()
	switch {
	case full && j.claim:
		return
	case full:
		j.log().Error("too many outcomes wait for the store; this record becomes unknown with its lease")
		return
	}
	select {
	case s.added <- struct{}{}:
	default:
	}
}

// run makes the writes that are added until the context ends.
func (s *settler) run(ctx context.Context, timeout time.Duration) {
	for {
		select {
		case <-s.added:
		case <-ctx.Done():
			return
		}
		for wait := settlerFirstPause; !s.round(timeout); wait = min(wait*2, settlerLastPause) {
			if !pause(ctx, wait) {
				return
			}
		}
	}
}

// round tries each waiting write once, and reports whether none is left. One that
// finds the store away ends the round, as the others would.
func (s *settler) round(timeout time.Duration) (empty bool) {
	for range s.waiting() {
		j, ok := s.take()
		if !ok {
			break
		}
		err := j.try(timeout)
		switch {
		case err == nil && j.claim:
			continue
		case err == nil:
			metrics.unsettled.Dec()
			j.log().Info("outcome is stored after all")
			continue
		}
		s.mu.Lock()
		s.put(j)
		s.mu.Unlock()
		var engine *store.EngineError
		if errors.As(err, &engine) && engine.Failure == store.Unavailable {
			break
		}
		j.log().Error("outcome is still not stored", zap.Error(err))
	}
	return s.waiting() == 0
}

func (s *settler) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.jobs)
}

func (s *settler) take() (job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs) == 0 {
		return job{}, false
	}
	j := s.jobs[0]
	s.jobs[0] = job{} // let go of its response
	s.jobs = s.jobs[1:]
	s.count(j, -1)
	return j, true
}

// put appends; the lock is held.
func (s *settler) put(j job) {
	s.jobs = append(s.jobs, j)
	s.count(j, 1)
}

// count adds a job to the sums, or takes it off; the lock is held.
func (s *settler) count(j job, sign int) {
	s.size += sign * j.size
	if j.claim {
		s.claims += sign
	}
}
