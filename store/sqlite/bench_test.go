package sqlite

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// What the store adds to a request that wins: one claim and one completion with
// a response of 1 KiB, both durable. Disk and goroutines decide.
func BenchmarkClaimAndComplete(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			e := open(b, Config{})
			var keys atomic.Int64
			b.SetParallelism(max(1, clients/2)) // times GOMAXPROCS
			work := func() error {
				draft := newDraft(fmt.Sprint("K", keys.Add(1)))
				if won, _, err := e.Claim(b.Context(), draft); err != nil || !won {
					return fmt.Errorf("won %v, error %w", won, err)
				}
				return e.Complete(b.Context(), draft.Identity, draft.Token, store.Completion{
					Status:    http.StatusCreated,
					Resource:  "/orders/1",
					Response:  &store.Response{Header: http.Header{"Content-Type": {"application/json"}}, Body: make([]byte, 1024)},
					ReplayFor: time.Hour,
				})
			}
			b.ResetTimer()
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
		})
	}
}

// What a replay costs: the losing claim and the read.
func BenchmarkLosingClaim(b *testing.B) {
	e := open(b, Config{})
	draft := newDraft("K1")
	claim(b, e, draft)
	require.NoError(b, e.Complete(b.Context(), draft.Identity, draft.Token, completion("answer")))
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, held, err := e.Claim(b.Context(), newDraft("K1")); err != nil || held == nil {
				b.Error(held, err)
				return
			}
		}
	})
}
