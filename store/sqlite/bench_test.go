package sqlite

import (
	"testing"

	"github.com/caddy-idempotency/caddy-idempotency/store/storetest"
)

func BenchmarkStore(b *testing.B) { storetest.Benchmark(b, open(b, Config{})) }
