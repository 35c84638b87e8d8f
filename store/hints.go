package store

import (
	"hash/maphash"
	"sync/atomic"
)

// Hints remembers which records an engine has seen completed, some of the last
// 64 Ki. A claim of one of them is a replay, and is spared competing for a row
// that it can only lose. It is never taken for a proof, since it may be wrong
// either way: who finds no completed record competes after all.
type Hints [1 << 16]atomic.Uint64

var hintSeed = maphash.MakeSeed()

// Add remembers the record.
func (h *Hints) Add(id Identity) {
	sum := maphash.Comparable(hintSeed, id)
	h[sum%uint64(len(h))].Store(sum)
}

// Has reports whether the record may have been seen completed.
func (h *Hints) Has(id Identity) bool {
	sum := maphash.Comparable(hintSeed, id)
	return h[sum%uint64(len(h))].Load() == sum
}
