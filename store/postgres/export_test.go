package postgres

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Session gives tests a connection of the engine's own pool, to look at what
// its calls leave behind there.
func (e *Engine) Session(ctx context.Context) (*pgxpool.Conn, error) { return e.pool.Acquire(ctx) }

// EstimateAlways takes every table for a large one.
func (e *Engine) EstimateAlways() { e.exactBelow = 0 }

// ByIndex are the settings of a shared transaction. $1 and $2 are its timeouts.
const ByIndex = string(durable + byIndex)

// Statements gives tests the SQL whose plans they look at.
var Statements = map[string]string{
	"list unknown":              listUnknown + unknownPage,
	"list unknown of one":       listUnknown + unknownPage,
	"list unknown, next page":   listUnknown + unknownAfter + unknownPage,
	"list others":               listOthers + othersPage,
	"list others, next page":    listOthers + othersAfter + othersPage,
	"list executing":            listExecuting + othersPage,
	"list executing, next page": listExecuting + othersAfter + othersPage,
	"abandon":                   abandon,
	"expire":                    expire,
	"purge":                     purge,
	"advance":                   advance,
	"count executing":           countExecuting,
	"count unknown":             countUnknown,
	"estimate settled":          estimateSettled,
	"count settled":             countSettled,
	"read settled":              readAllSettled,
	"read response":             readAllSettled,
	"complete":                  complete,
	"complete late":             completeLate,
	"take unknown":              takeUnknown,
	"take for probe":            takeForProbe,
	"put off":                   putOff,
	"natural key holder":        naturalKeyHolder,
	"resolve completed":         resolveCompleted,
	"resolve released":          resolveReleased,
	"decided":                   decided,
	"audit":                     audit,
	"lock quotas":               lockQuotas,
	"claims within":             claimsWithin,
	"claims within, tenant":     claimsWithinOfTenant,
	"purge slots":               purgeSlots,
}

// Gather starts the calls and sees to it that all of them are in one batch: it is
// sent when the last of them waits. It returns when the calls have.
func (e *Engine) Gather(calls ...func()) { e.GatherThen(func() {}, calls...) }

// GatherThen is Gather with something done before the batch is sent.
func (e *Engine) GatherThen(meanwhile func(), calls ...func()) {
	gather(e.writes, meanwhile, calls)
}

// GatherWithin is Gather for claims with quotas, in one operation of a tenant.
func (e *Engine) GatherWithin(tenant, operation string, calls ...func()) {
	b := &batches{lanes: 1, most: maxBatch, patience: e.config.Timeout, send: e.write}
	e.turns.mu.Lock()
	e.turns.queues[turn{tenant: tenant, operation: operation}] = &queue{batches: b}
	e.turns.mu.Unlock()
	gather(b, func() {}, calls)
}

func gather(b *batches, meanwhile func(), calls []func()) {
	b.mu.Lock()
	b.running += maxLanes // nobody sends
	b.mu.Unlock()

	var running sync.WaitGroup
	for _, call := range calls {
		running.Go(call)
	}
	for waiting := 0; waiting < len(calls); runtime.Gosched() {
		b.mu.Lock()
		waiting = len(b.claims) + len(b.settlements)
		b.mu.Unlock()
	}
	meanwhile()
	b.mu.Lock()
	b.running -= maxLanes - 1
	b.mu.Unlock()
	go b.run()
	running.Wait()
}

// Age makes everybody who waits have waited for that much longer.
func (e *Engine) Age(by time.Duration) {
	e.writes.mu.Lock()
	defer e.writes.mu.Unlock()
	for _, m := range e.writes.claims {
		m.joined = m.joined.Add(-by)
	}
}

// FillQueue leaves no room for another claim, until the function it returns is called.
func (e *Engine) FillQueue() (empty func()) {
	b := e.writes
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims = make([]*member, maxWaiting)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.claims = nil
	}
}

// Waiting is how many claims wait for a quota that somebody holds, or are decided.
func (e *Engine) Waiting() (n int) {
	e.turns.mu.Lock()
	defer e.turns.mu.Unlock()
	for turn, q := range e.turns.queues {
		if turn.patient {
			n += q.callers
		}
	}
	return n
}
