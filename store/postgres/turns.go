package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// turns are the queues of claims with quotas. Claims of one quota would wait for each
// other in any case; here they do so without a connection for each, so that a
// settlement finds one, and take the quota's lock together.
type turns struct {
	mu     sync.Mutex
	queues map[turn]*queue
}

// turn is who waits together.
type turn struct {
	tenant, operation string
	actor             string // "" for all of them
	patient           bool   // for the quota, and not only as long as others can bear
	alone             bool   // one after the other
}

type queue struct {
	*batches
	callers int
}

// claimWithin has a claim with quotas wait for its turn: first together with those of
// other actors, and if that takes too long, or others wait for its quota already,
// only with those that this bounds. One with a natural key does not share: it waits
// for others in an order that is not that of the keys.
func (e *Engine) claimWithin(ctx context.Context, m *member) error {
	everybody := turn{tenant: m.draft.Tenant, operation: m.draft.Operation}
	bound := everybody
	bound.patient, bound.alone = true, m.draft.NaturalKey != ""
	if !slices.ContainsFunc(m.draft.Quotas, func(q store.Quota) bool { return q.PerTenant }) {
		bound.actor = m.draft.Actor
	}
	if !bound.alone && !e.turns.hasQueue(bound) {
		if err := e.take(ctx, everybody, m); err != errApart {
			return err
		}
	}
	return e.take(ctx, bound, m)
}

// take waits for one turn. A queue is there for as long as somebody is in it.
func (e *Engine) take(ctx context.Context, t turn, m *member) error {
	e.turns.mu.Lock()
	q := e.turns.queues[t]
	if q == nil {
		q = &queue{batches: &batches{lanes: 1, most: maxBatch, patience: e.config.Timeout / 2, send: e.write}}
		if t.patient {
			q.send = e.writePatiently
		}
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

func (t *turns) hasQueue(of turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.queues[of] != nil
}

// writePatiently waits for locks as long as one may. Who has done so is not made to
// wait again.
func (e *Engine) writePatiently(claims, _ []*member) error {
	slices.SortFunc(claims, inKeyOrder)
	err := e.shareWithin(e.config.LockTimeout, durable, func(b *pgx.Batch) { queueClaims(b, claims) })
	var failed *store.EngineError
	if len(claims) == 1 || errors.As(err, &failed) && failed.Failure == store.Busy {
		return err
	}
	return refusedForOne(err)
}
