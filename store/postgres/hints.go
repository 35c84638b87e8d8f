package postgres

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// hints remembers which records this process has seen settled, some of the last
// 64 Ki. A claim of one of them is a replay, and is spared competing for a row
// that it can only lose. It is never taken for a proof, since it may be wrong
// either way: who finds no settled record competes after all.
type hints [1 << 16]atomic.Uint64

var seed = maphash.MakeSeed()

func (h *hints) add(id store.Identity) {
	sum := maphash.Comparable(seed, id)
	h[sum%uint64(len(h))].Store(sum)
}

func (h *hints) has(id store.Identity) bool {
	sum := maphash.Comparable(seed, id)
	return h[sum%uint64(len(h))].Load() == sum
}
