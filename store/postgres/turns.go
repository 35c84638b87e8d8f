package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// turns are the queues of claims that a quota bounds together. They would wait for
// each other in any case; here they do so with one connection between them, so that
// others get theirs, and go on together.
type turns struct {
	mu     sync.Mutex
	queues map[turn]*queue
}

// turn is whose quotas a queue waits for.
type turn struct {
	tenant, operation string
	actor             string // "" for all of them
	alone             bool   // one claim after the other
}

type queue struct {
	*batches
	callers int
}

// claimWithin has a claim with quotas wait for its turn. One with a natural key does
// not share: it waits for others in an order that is not that of the keys.
func (e *Engine) claimWithin(ctx context.Context, m *member) error {
	t := turn{m.draft.Tenant, m.draft.Operation, m.draft.Actor, m.draft.NaturalKey != ""}
	if slices.ContainsFunc(m.draft.Quotas, func(q store.Quota) bool { return q.PerTenant }) {
		t.actor = ""
	}
	e.turns.mu.Lock()
	q := e.turns.queues[t]
	if q == nil {
		q = &queue{batches: &batches{lanes: 1, most: maxBatch, patience: e.config.Timeout / 2, send: e.writeWithin}}
		if t.alone {
			q.most = 1
		}
		e.turns.queues[t] = q
	}
	q.callers++
	e.turns.mu.Unlock()

	err := q.join(ctx, m)

	e.turns.mu.Lock()
	defer e.turns.mu.Unlock()
	if q.callers--; q.callers == 0 {
		delete(e.turns.queues, t)
	}
	return err
}

// writeWithin runs the claims whose turn it is. Who has waited for the quota as long as
// one may is not made to wait again.
func (e *Engine) writeWithin(claims, _ []*member) error {
	slices.SortFunc(claims, inKeyOrder)
	err := e.shareWithin(e.config.LockTimeout, durable, func(b *pgx.Batch) { queueWithin(b, claims) })
	var failed *store.EngineError
	if len(claims) == 1 || errors.As(err, &failed) && failed.Failure == store.Busy {
		return err
	}
	return apart(err)
}
