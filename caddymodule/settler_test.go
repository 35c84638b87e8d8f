package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

var away = &store.EngineError{Op: "completing record", Failure: store.Unavailable, Err: errors.New("connection refused")}

func nopLog() *zap.Logger { return zap.NewNop() }

func TestOutcomeIsWrittenOnceTheStoreIsBack(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s := newSettler()
	tries, written := 0, make(chan struct{})
	s.add(job{log: nopLog, write: func(context.Context) error {
		if tries++; tries < 3 {
			return away
		}
		close(written)
		return nil
	}})
	ended := make(chan struct{})
	go func() { s.run(ctx, time.Second); close(ended) }()

	<-written
	stop()
	<-ended
	require.Zero(t, s.waiting())
	require.Equal(t, 3, tries)
}

func TestOutcomeThatTheStoreRejectsDoesNotHoldUpTheOthers(t *testing.T) {
	s := newSettler()
	var written []string
	s.add(job{log: nopLog, leaseEnds: time.Now(), write: func(context.Context) error {
		return &store.EngineError{Failure: store.Rejected, Err: errors.New("no such column")}
	}})
	s.add(job{log: nopLog, write: func(context.Context) error { written = append(written, "second"); return nil }})

	empty := s.round(t.Context(), time.Second)

	require.Equal(t, []string{"second"}, written)
	require.False(t, empty, "the rejected one is tried again later")
}

func TestOutcomeThatTheStoreRejectsIsGivenUpLongAfterItsLease(t *testing.T) {
	for name, c := range map[string]struct {
		leaseEnded time.Duration // ago
		refusal    error
		givenUp    bool
	}{
		"rejected, long after":   {settlerPatience + time.Minute, &store.EngineError{Failure: store.Rejected, Err: errors.New("too long")}, true},
		"rejected, soon after":   {settlerPatience - time.Minute, &store.EngineError{Failure: store.Rejected, Err: errors.New("too long")}, false},
		"store away, long after": {settlerPatience + time.Minute, away, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSettler()
			waiting, given := unsettled(t), givenUp(t)
			s.add(job{log: nopLog, size: 10, leaseEnds: time.Now().Add(-c.leaseEnded), write: func(context.Context) error { return c.refusal }})

			require.Equal(t, c.givenUp, s.round(t.Context(), time.Second))

			if c.givenUp {
				require.Zero(t, s.size)
				require.Equal(t, []float64{waiting, given + 1}, []float64{unsettled(t), givenUp(t)})
			} else {
				require.Equal(t, []float64{waiting + 1, given}, []float64{unsettled(t), givenUp(t)})
				metrics.unsettled.Dec()
			}
		})
	}
}

func TestSizeOfAnOutcomeIsThatOfAllThatIsKept(t *testing.T) {
	header := http.Header{"Etag": {"12"}, "X-Line": {"a", "bc"}}
	require.Equal(t, 9, sizeOf("/orders/1", nil))
	require.Equal(t, 9+5+4+2+6+1+6+2, sizeOf("/orders/1", &store.Response{Header: header, Body: []byte("12345")}))
}

func TestRoundEndsWhenTheStoreIsAway(t *testing.T) {
	s := newSettler()
	tries := 0
	for range 5 {
		s.add(job{log: nopLog, write: func(context.Context) error { tries++; return away }})
	}

	empty := s.round(t.Context(), time.Second)

	require.False(t, empty)
	require.Equal(t, 1, tries)
	require.Equal(t, 5, s.waiting())
}

func TestRoundEndsWithItsTime(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s := newSettler()
	tries := 0
	for range 5 {
		s.add(job{log: nopLog, write: func(context.Context) error {
			tries++
			stop()
			return &store.EngineError{Failure: store.Busy, Err: errors.New("locked")}
		}})
	}

	empty := s.round(ctx, time.Second)

	require.False(t, empty)
	require.Equal(t, 1, tries)
	require.Equal(t, 5, s.waiting())
}

func TestRecordSettledBySomebodyElseIsLeftAlone(t *testing.T) {
	s := newSettler()
	s.add(job{log: nopLog, write: func(context.Context) error { return &store.ClaimLostError{} }})

	require.True(t, s.round(t.Context(), time.Second))
}

func TestWaitingOutcomesAreBoundedInMemory(t *testing.T) {
	s := newSettler()
	big := job{log: nopLog, size: settlerMemory, write: func(context.Context) error { return away }}
	s.add(big)
	s.add(big)
	require.Equal(t, 1, s.waiting())

	small := big
	small.size = 0
	s.add(small)
	require.Equal(t, 2, s.waiting())
}
