package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const smallBody = 200

// keysThere is how many keys replays choose from.
const keysThere = 2000

// requestsToAHotKey is after how many requests the next key becomes the hot one.
const requestsToAHotKey = 1000

func target(delay time.Duration, size int) string {
	return fmt.Sprintf("/orders?delay=%s&size=%d", delay, size)
}

// firstWrite is a load of keys that are new.
func firstWrite(clients int, delay time.Duration, size int) load {
	return load{clients: clients, target: target(delay, size), body: jsonOf(size), nextKey: newKey, accept: http.StatusCreated}
}

// replay is a load of keys that are completed.
func replay(clients, size int, there []key) load {
	l := firstWrite(clients, 0, size)
	l.nextKey = func() key { return there[rand.IntN(len(there))] }
	return l
}

// mixture is four first writes to one replay.
func mixture(clients int, there []key) load {
	l := firstWrite(clients, 0, smallBody)
	l.nextKey = func() key {
		if rand.IntN(5) == 0 {
			return there[rand.IntN(len(there))]
		}
		return newKey()
	}
	return l
}

// hotKey is a load in which all clients have the same key: one of them wins, the
// others wait for it or come later.
func hotKey(clients int) load {
	l := firstWrite(clients, 0, smallBody)
	var sent atomic.Int64
	var mu sync.Mutex
	current := newKey()
	l.nextKey = func() key {
		mu.Lock()
		defer mu.Unlock()
		if sent.Add(1)%requestsToAHotKey == 0 {
			current = newKey()
		}
		return current
	}
	return l
}

// mismatch is a load of keys that are completed, with another payload. A bare
// proxy forwards it.
func mismatch(clients int, there []key) load {
	l := replay(clients, smallBody, there)
	l.body = jsonOf(smallBody + 1)
	return l
}

// complete sends first writes of some keys to the gateway, and returns them.
func (b *bench) complete(gateway *caddy, size int) ([]key, error) {
	return b.completeSome(gateway, size, b.some(keysThere))
}

// completeFew is for bodies so large that thousands would fill the disk.
func (b *bench) completeFew(gateway *caddy, size int) ([]key, error) {
	return b.completeSome(gateway, size, 50)
}

func (b *bench) completeSome(gateway *caddy, size, n int) ([]key, error) {
	there := make([]key, n)
	for i := range there {
		there[i] = newKey()
	}
	l := firstWrite(8, 0, size)
	var next atomic.Int64
	l.nextKey = func() key { return there[int(next.Add(1)-1)%len(there)] }
	for next.Load() < int64(len(there)) {
		if _, err := l.run(b.ctx, gateway.addr, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return there, nil
}
