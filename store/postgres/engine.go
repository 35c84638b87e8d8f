// Package postgres keeps idempotency records in PostgreSQL, for any number of
// instances: the database arbitrates.
//
// What lives here is how PostgreSQL makes each transition of package store
// atomic. Each is one guarded statement, in a READ COMMITTED transaction that is
// sent in one round trip and holds a connection for no longer. Claims and
// settlements that come at once share a transaction (batch.go).
// When which transition may happen is decided in package store.
//
// The engine works through a transaction-mode pooler, and serves with no more than
// the rights to read and write its tables: it uses no advisory lock, no
// notification and no setting of a session. Other engines that speak PostgreSQL's
// protocol have not been tried, and sweeps and migrations use what some of them lack.
package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// Engine implements store.Engine.
type Engine struct {
	pool   *pgxpool.Pool
	config Config
	writes *batches    // claims and settlements
	turns  turns       // claims with quotas
	reads  *batches    // of records that are settled
	seen   store.Hints // see Claim

	exactBelow int64 // size of the table in bytes, see Stats
}

var _ store.Engine = (*Engine)(nil)

// Close waits for the calls under way and closes every connection.
func (e *Engine) Close() error {
	e.pool.Close()
	return nil
}

// Claim implements store.Engine.
func (e *Engine) Claim(ctx context.Context, draft store.Draft) (won bool, held *store.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()

	// A hint is no proof, and enough not to let the caller take the key for a new one.
	m := &member{op: "claiming record", draft: &draft, lost: e.seen.Has(draft.Identity)}
	won, held, err = e.claim(ctx, m)
	var failed *store.EngineError
	if m.lost && errors.As(err, &failed) {
		err = &store.NotWonError{Err: err}
	}
	return won, held, err
}

// claim competes, and reads what a loser lost to. The loser's read is a statement of
// its own, since the INSERT's snapshot may be older than the row it lost to.
//
// A claim that another constraint decides too does not share a transaction: it waits
// for others in an order that is not that of the keys.
func (e *Engine) claim(ctx context.Context, m *member) (won bool, held *store.Record, err error) {
	draft := *m.draft
	switch {
	case len(draft.Quotas) > 0:
		err = e.claimTogether(ctx, m, e.claimWithin)
	case draft.NaturalKey == "":
		err = e.claimTogether(ctx, m, e.writes.join)
	default:
		err = errApart
	}
	if err == errApart {
		err = e.claimAlone(ctx, m)
	}
	clash := isNaturalKeyClash(err)
	switch {
	case clash:
		m.lost = true
	case err != nil:
		return false, nil, err
	case m.won || m.held != nil:
		return m.won, m.held, nil
	case m.exceeded != nil && draft.NaturalKey == "":
		return false, nil, m.exceeded
	}
	held, err = e.Read(ctx, draft.Identity)
	switch {
	case err == store.ErrNoRecord && (clash || m.exceeded != nil):
		// A business identity that is taken is told so, whatever the quota says.
		if err := e.naturalKeyHolder(ctx, draft); err != nil || m.exceeded == nil {
			return false, nil, err
		}
		return false, nil, m.exceeded
	case err == store.ErrNoRecord:
		return false, nil, nil
	case err != nil:
		return false, nil, err
	case held.Token == draft.Token && held.State == store.Executing:
		return true, nil, nil // an earlier try took effect
	}
	return false, held, nil
}

// claimTogether competes in a transaction with others. What comes of it may be
// that nothing is held, or errApart.
func (e *Engine) claimTogether(ctx context.Context, m *member, compete func(context.Context, *member) error) error {
	hinted := m.lost
	if !hinted {
		if err := compete(ctx, m); err != nil || m.won || m.exceeded != nil {
			return err
		}
	}
	err := e.reads.join(ctx, m)
	switch {
	case err != nil:
		return err
	case m.held != nil:
		e.seen.Add(m.draft.Identity)
	case hinted:
		return compete(ctx, m)
	}
	return nil
}

// claimAlone competes in a transaction of its own.
func (e *Engine) claimAlone(ctx context.Context, m *member) error {
	m.won, m.held, m.exceeded = false, nil, nil // whatever came of it together
	return e.inTx(ctx, m.op, durable, func(b *pgx.Batch) {
		queueClaims(b, []*member{m})
		// The commonest loser, a replay far from expiry, is served by this round trip.
		queueRead(b, readSettled, m.draft.Identity, &m.held)
	})
}

// isNaturalKeyClash tells the other unique constraint from every other error. Two
// claims of the same key and the same natural key at once may also run into it
// before the conflict target: whoever gets it has to look for its own record first.
func isNaturalKeyClash(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == uniqueViolation && strings.Contains(pg.ConstraintName, "_natural")
}

const naturalKeyHolder = `
SELECT actor, key FROM idempotency_records
WHERE tenant = $1 AND operation = $2 AND natural_key = $3 AND (actor, key) <> ($4, $5)`

// naturalKeyHolder returns whose the natural key is, as an error; nil if it was
// released meanwhile, also if the draft's own key was claimed with it since then.
func (e *Engine) naturalKeyHolder(ctx context.Context, draft store.Draft) error {
	holder := draft.Identity
	found := false
	err := e.inTx(ctx, "reading natural key", lazy, func(b *pgx.Batch) {
		b.Queue(naturalKeyHolder, draft.Tenant, draft.Operation, draft.NaturalKey, draft.Actor, draft.Key).Query(func(rows pgx.Rows) error {
			defer rows.Close()
			for rows.Next() {
				found = true
				if err := rows.Scan(&holder.Actor, &holder.Key); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	})
	if err == nil && found {
		err = &store.NaturalKeyTakenError{Holder: holder}
	}
	return err
}

// orNull keeps "nothing known" out of the columns: NULL says so.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
