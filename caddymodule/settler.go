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
	// settlerMemory bounds the outcomes that wait for the store, in bytes. What
	// comes beyond it is given up: its record becomes unknown with its lease.
	settlerMemory = 64 << 20
	settlerJobs   = 100_000

	// settlerClaims is how many of them may be claims that were never proved. A
	// store that is away makes one with every request, and they must not take the
	// room of outcomes, which are of requests that were executed.
	settlerClaims = 10_000

	// settlerPatience is how long after its lease a write is tried again that the store
	// answers, and refuses. By then its record has long become unknown, and somebody
	// has to look into it.
	settlerPatience = time.Hour

	settlerFirstPause = 100 * time.Millisecond
	settlerLastPause  = 5 * time.Second

	// settlerGrace is how long the last try of all that waits may take, when the store
	// is to be closed. A reload, or the end of the process, waits for it.
	settlerGrace = 5 * time.Second
)

// settler goes on with writes that the store did not take. Each carries its claim's
// token, so that it can be repeated, and come late, without harm.
type settler struct {
	mu       sync.Mutex
	outcomes []job                  // of requests that were executed: they go first
	claims   []job                  // that were never proved
	size     int                    // of all outcomes, in bytes, until they are stored
	keys     map[store.Identity]int // of the same
	added    chan struct{}
}

// job is one write of an outcome.
type job struct {
	id        store.Identity // of an outcome's record
	write     func(context.Context) error
	size      int // of the outcome that it holds, in bytes
	leaseEnds time.Time
	log       func() *zap.Logger

	// claim says that it takes back a claim that was never proved. There is no
	// outcome, and nothing is lost but time if it is given up.
	claim bool
}

// try makes the write. Its error says that the outcome is not durable yet.
func (j job) try(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
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

func newSettler() *settler {
	return &settler{keys: make(map[store.Identity]int), added: make(chan struct{}, 1)}
}

// add takes a write over.
func (s *settler) add(j job) {
	s.mu.Lock()
	full := s.size+j.size > settlerMemory || len(s.outcomes) >= settlerJobs
	switch {
	case j.claim && len(s.claims) >= settlerClaims:
		s.mu.Unlock()
		return // its record, if there is one, becomes unknown with its lease
	case j.claim:
		s.claims = append(s.claims, j)
	case full:
		s.mu.Unlock()
		metrics.givenUp.Inc()
		j.log().Error("too many outcomes wait for the store; this record becomes unknown with its lease")
		return
	default:
		s.outcomes = append(s.outcomes, j)
		s.size += j.size
		s.keys[j.id]++
		metrics.unsettled.Inc() // until it is written: one that is being tried counts, too
	}
	s.mu.Unlock()
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
		for wait := settlerFirstPause; !s.round(ctx, timeout); wait = min(wait*2, settlerLastPause) {
			if !pause(ctx, wait) {
				return
			}
		}
	}
}

// finish gives what still waits a last try, and says of each outcome that is left
// that nobody will store it.
func (s *settler) finish(timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), settlerGrace)
	defer cancel()
	s.round(ctx, timeout)
	for _, j := range s.outcomes { // nothing is added any more
		s.remove(j)
		metrics.givenUp.Inc()
		j.log().Error("outcome is given up, since its store is closed; its record becomes unknown with its lease")
	}
	s.outcomes = nil
}

// round tries each waiting write once, outcomes first, and reports whether none is
// left. One that finds the store away ends the round, as the others would.
func (s *settler) round(ctx context.Context, timeout time.Duration) (empty bool) {
	if away := s.tryAll(ctx, &s.outcomes, timeout); !away {
		s.tryAll(ctx, &s.claims, timeout)
	}
	return s.waiting() == 0
}

// tryAll tries the writes of one queue until the context ends, and keeps those that
// failed, in their order. What is added meanwhile waits behind them.
func (s *settler) tryAll(ctx context.Context, queue *[]job, timeout time.Duration) (away bool) {
	s.mu.Lock()
	batch := *queue
	*queue = nil
	s.mu.Unlock()

	var failed []job
	for i, j := range batch {
		if ctx.Err() != nil {
			failed = append(failed, batch[i:]...)
			break
		}
		err := j.try(ctx, timeout)
		var engine *store.EngineError
		switch {
		case err == nil:
			s.remove(j)
			if !j.claim {
				j.log().Info("outcome is stored after all")
			}
			continue
		case errors.As(err, &engine) && engine.Failure == store.Rejected && time.Since(j.leaseEnds) > settlerPatience:
			s.remove(j)
			if !j.claim {
				metrics.givenUp.Inc()
				j.log().Error("outcome is given up, since the store refuses it; its record is of unknown outcome", zap.Error(err))
			}
			continue
		}
		failed = append(failed, j)
		if away = errors.As(err, &engine) && engine.Failure == store.Unavailable; away {
			failed = append(failed, batch[i+1:]...)
			break
		}
		j.log().Error("outcome is still not stored", zap.Error(err))
	}
	s.mu.Lock()
	*queue = append(failed, *queue...)
	s.mu.Unlock()
	return away
}

// remove forgets a write that needs no other try.
func (s *settler) remove(j job) {
	if j.claim {
		return
	}
	s.mu.Lock()
	s.size -= j.size
	if s.keys[j.id]--; s.keys[j.id] == 0 {
		delete(s.keys, j.id)
	}
	s.mu.Unlock()
	metrics.unsettled.Dec()
}

// holds reports whether an outcome of the identity waits for the store.
func (s *settler) holds(id store.Identity) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[id] > 0
}

// sizeOf what is kept of an outcome, in bytes.
func sizeOf(resource string, response *store.Response) int {
	size := len(resource)
	if response == nil {
		return size
	}
	size += len(response.Body)
	for name, lines := range response.Header {
		for _, line := range lines {
			size += len(name) + len(line)
		}
	}
	return size
}

// waiting is how many writes are queued.
func (s *settler) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.outcomes) + len(s.claims)
}
