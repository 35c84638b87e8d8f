package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

const (
	// maxBatch bounds how many calls share a transaction, and with it how long the
	// first of them waits for the others.
	maxBatch = 128

	// slowBatch is how long a call waits for the batch under way before another one
	// is sent beside it, on another connection. One at a time makes for the largest
	// batches; one that waits for a lock is not to keep everybody.
	slowBatch = 5 * time.Millisecond
	maxLanes  = 4

	// maxWaiting bounds the claims that wait for a transaction. One more is refused
	// at once, since it could only come too late.
	maxWaiting = 4096

	// sharedLockTimeout is how long a shared transaction waits for a lock, before
	// each of its members is left to wait by itself.
	sharedLockTimeout = 50 * time.Millisecond

	// maxShared is the size of a response body above which neither its completion
	// nor its replay shares: the others would wait until it is through.
	maxShared = 64 << 10
)

// batches collects calls while a transaction is under way, and sends them on in the
// next. What a small transaction costs is nearly all round trip, flush and
// bookkeeping, and little of it for each row. There is no timer: a call that finds
// nothing under way goes at once, and is alone in its transaction.
type batches struct {
	lanes    int           // that may send at once
	most     int           // calls in a transaction
	patience time.Duration // of a claim for a lane
	send     func(claims, settlements []*member) error

	mu          sync.Mutex
	running     int // lanes
	claims      []*member
	settlements []*member
}

// member is one call: a claim, a completion, or another guarded statement.
type member struct {
	op         string
	draft      *store.Draft
	completion *completion
	sql        string
	args       []any

	joined time.Time

	done     chan struct{} // closed when the fields below are final
	won      bool
	lost     bool // as the database has answered, even if the transaction failed after that
	held     *store.Record
	exceeded *store.QuotaExceededError
	moved    bool
	err      error
}

var (
	// errApart says that the member has to have a transaction of its own. An
	// earlier one may have taken effect: its token tells.
	errApart = errors.New("not together")

	errOverloaded = errors.New("too many claims are waiting for the database")
)

// join has the member take part in a batch, and waits for the result. A member
// that is taken along is waited for even if its caller has gone: whoever settles
// next must know.
func (b *batches) join(ctx context.Context, m *member) error {
	if ctx.Err() != nil {
		return notSent(ctx, m) // a lane might be faster than the withdrawal
	}
	m.joined, m.done = time.Now(), make(chan struct{})
	if !b.add(m) {
		return &store.EngineError{Op: m.op, Failure: store.Overloaded, Err: errOverloaded}
	}
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
	}
	if b.withdraw(m) {
		return notSent(ctx, m)
	}
	<-m.done
	return m.err
}

// notSent is the error of a call that had no effect.
func notSent(ctx context.Context, m *member) error {
	failure := store.Unavailable
	if ctx.Err() == context.DeadlineExceeded {
		failure = store.Overloaded // trying again would only make the queue longer
	}
	return &store.EngineError{Op: m.op, Failure: failure, Err: ctx.Err()}
}

// add queues the member, unless there is no room for a claim. A settlement always
// has room, since it had a claim.
func (b *batches) add(m *member) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := len(b.claims)+len(b.settlements) == 0
	switch {
	case m.draft == nil:
		b.settlements = append(b.settlements, m)
	case len(b.claims) == maxWaiting:
		return false
	default:
		b.claims = append(b.claims, m)
	}
	switch {
	case b.running == 0:
		b.running++
		go b.run()
	case first:
		time.AfterFunc(slowBatch, b.help)
	}
	return true
}

// help opens another lane if somebody has waited for too long, and all that are open
// are still busy.
func (b *batches) help() {
	b.mu.Lock()
	defer b.mu.Unlock()
	slow := time.Now().Add(-slowBatch)
	waited := func(queue []*member) bool { return len(queue) > 0 && !queue[0].joined.After(slow) }
	if b.running < b.lanes && (waited(b.claims) || waited(b.settlements)) {
		b.running++
		go b.run()
	}
}

// withdraw takes the member out of the queue. It reports false if it was taken along.
func (b *batches) withdraw(m *member) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	queue := &b.claims
	if m.draft == nil {
		queue = &b.settlements
	}
	i := slices.Index(*queue, m)
	if i < 0 {
		return false
	}
	*queue = slices.Delete(*queue, i, i+1)
	return true
}

// run is a lane: it sends batches for as long as somebody waits.
func (b *batches) run() {
	for {
		claims, settlements := b.take()
		if len(claims)+len(settlements) == 0 {
			return
		}
		err := b.send(claims, settlements)
		for _, m := range slices.Concat(claims, settlements) {
			m.err = err
			close(m.done)
		}
	}
}

// take takes those who have waited longest, settlements before claims: they end
// what is under way. A claim that has waited for too long is refused: trying it
// would only make the others late. The lane ends if there is nobody.
func (b *batches) take() (claims, settlements []*member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	late := time.Now().Add(-b.patience)
	i := 0
	for ; i < len(b.claims) && b.claims[i].joined.Before(late); i++ {
		m := b.claims[i]
		m.err = &store.EngineError{Op: m.op, Failure: store.Overloaded, Err: errOverloaded}
		close(m.done)
	}
	settlements, b.settlements = split(b.settlements, b.most)
	claims, b.claims = split(b.claims[i:], b.most-len(settlements))
	switch {
	case len(claims)+len(settlements) == 0:
		b.running--
	case len(b.claims)+len(b.settlements) > 0:
		time.AfterFunc(slowBatch, b.help)
	}
	return claims, settlements
}

// split leaves the rest in an array of its own.
func split(queue []*member, most int) (taken, rest []*member) {
	if len(queue) <= most {
		return queue, nil
	}
	return queue[:most:most], slices.Clone(queue[most:])
}
