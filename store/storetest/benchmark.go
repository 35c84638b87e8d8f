package storetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// Benchmark measures what the store adds to a request: to one that wins, a claim
// and a completion with a response of 1 KiB, both durable; to a replay, the claim
// that it loses. The engine's database is empty.
func Benchmark(b *testing.B, engine store.Engine) {
	var claims, keys atomic.Uint64
	draft := func(key string) store.Draft {
		d := store.Draft{
			Identity:    store.Identity{Scope: store.Scope{Tenant: "acme", Actor: "alice", Operation: "create-order"}, Key: key},
			Fingerprint: store.Fingerprint{Algorithm: 1, Version: "v1"},
			Lease:       time.Hour,
		}
		binary.BigEndian.PutUint64(d.Token[:], claims.Add(1))
		return d
	}
	execute := func(key string) error {
		d := draft(key)
		if won, _, err := engine.Claim(context.Background(), d); err != nil || !won {
			return fmt.Errorf("won %v, error %w", won, err)
		}
		return engine.Complete(context.Background(), d.Identity, d.Token, store.Completion{
			Status:    http.StatusCreated,
			Resource:  "/orders/1",
			Response:  &store.Response{Header: http.Header{"Content-Type": {"application/json"}}, Body: make([]byte, 1024)},
			ReplayFor: 24 * time.Hour,
		})
	}
	require.NoError(b, execute("replayed"))

	for _, work := range []struct {
		name string
		once func() error
	}{
		{"first", func() error { return execute(fmt.Sprint("key ", keys.Add(1))) }},
		{"replay", func() error {
			if _, held, err := engine.Claim(context.Background(), draft("replayed")); err != nil || held == nil {
				return fmt.Errorf("held %v, error %w", held, err)
			}
			return nil
		}},
	} {
		for _, clients := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/clients=%d", work.name, clients), func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(max(1, clients/2)) // times GOMAXPROCS
				if clients == 1 {
					for b.Loop() {
						require.NoError(b, work.once())
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := work.once(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
