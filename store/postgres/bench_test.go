package postgres_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
)

// What the store adds to a request that wins: one claim and one completion with
// a response of 1 KiB, both durable.
func BenchmarkClaimAndComplete(b *testing.B) {
	db := pgtest.New(b)
	e := open(b, postgres.Config{DSN: db.DSN})
	b.Cleanup(func() { e.Close() })
	var keys atomic.Int64
	for _, clients := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			inParallel(b, clients, func() error {
				d := draft(store.Token{})
				n := keys.Add(1)
				d.Key = fmt.Sprint("benchmark-key-", n)
				copy(d.Token[:], fmt.Sprintf("%016d", n))
				if won, _, err := e.Claim(context.Background(), d); err != nil || !won {
					return fmt.Errorf("won %v, error %w", won, err)
				}
				return e.Complete(context.Background(), d.Identity, d.Token, store.Completion{
					Status:    http.StatusCreated,
					Resource:  "/orders/1",
					Response:  &store.Response{Header: http.Header{"Content-Type": {"application/json"}}, Body: make([]byte, 1024)},
					ReplayFor: 24 * time.Hour,
				})
			})
		})
	}
}

// What a replay costs that is far from the end of its window.
func BenchmarkReplay(b *testing.B) {
	db := pgtest.New(b)
	e := open(b, postgres.Config{DSN: db.DSN})
	b.Cleanup(func() { e.Close() })
	won, _, err := e.Claim(b.Context(), draft(rightToken))
	require.NoError(b, err)
	require.True(b, won)
	require.NoError(b, e.Complete(b.Context(), identity, rightToken, *answer(ample)))
	for _, clients := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			inParallel(b, clients, func() error {
				if _, held, err := e.Claim(context.Background(), draft(otherToken)); err != nil || held == nil {
					return fmt.Errorf("held %v, error %w", held, err)
				}
				return nil
			})
		})
	}
}

func inParallel(b *testing.B, clients int, work func() error) {
	b.ReportAllocs()
	b.SetParallelism(max(1, clients/2)) // times GOMAXPROCS
	if clients == 1 {
		for b.Loop() {
			require.NoError(b, work())
		}
		return
	}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := work(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
