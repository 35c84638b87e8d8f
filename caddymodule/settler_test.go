package caddymodule

import (
	"context"
	"errors"
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
	s.add(job{log: nopLog, write: func(context.Context) error {
		return &store.EngineError{Failure: store.Rejected, Err: errors.New("no such column")}
	}})
	s.add(job{log: nopLog, write: func(context.Context) error { written = append(written, "second"); return nil }})

	empty := s.round(time.Second)

	require.Equal(t, []string{"second"}, written)
	require.False(t, empty, "the rejected one is tried again later")
}

func TestRoundEndsWhenTheStoreIsAway(t *testing.T) {
	s := newSettler()
	tries := 0
	for range 5 {
		s.add(job{log: nopLog, write: func(context.Context) error { tries++; return away }})
	}

	empty := s.round(time.Second)

	require.False(t, empty)
	require.Equal(t, 1, tries)
	require.Equal(t, 5, s.waiting())
}

func TestRecordSettledBySomebodyElseIsLeftAlone(t *testing.T) {
	s := newSettler()
	s.add(job{log: nopLog, write: func(context.Context) error { return &store.ClaimLostError{} }})

	require.True(t, s.round(time.Second))
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
