package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
)

// Nearly all leases end with their records completed long since. However many they
// are, one sweep moves all of their hints on: else the list would grow for ever.
func TestSweepKeepsUpWithMoreThanABatchOfCompletedRecords(t *testing.T) {
	db := pgtest.New(t)
	engine := open(t, postgres.Config{DSN: db.DSN})
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	s := store.New(engine)
	const limit = 5
	for n := range 3*limit + 1 {
		id := store.Identity{Scope: store.Scope{Tenant: "t", Actor: "a", Operation: "o"}, Key: fmt.Sprint("K", n)}
		claim, _, err := s.Claim(t.Context(), id, store.Fingerprint{}, "", time.Minute)
		require.NoError(t, err)
		if n > 0 { // one is left executing, the longest due
			require.NoError(t, claim.Complete(t.Context(), store.Completion{Status: 201, ReplayFor: time.Hour}))
		}
	}
	db.Exec(t, `UPDATE idempotency_records SET lease_until = now() - interval '1 second'`)
	db.Exec(t, `UPDATE idempotency_due SET due_at = now() - interval '1 second'`)

	moved, err := s.Abandon(t.Context(), limit)

	require.NoError(t, err)
	require.Equal(t, 1, moved)
	require.Zero(t, pgtest.Get[int](t, db, `SELECT count(*) FROM idempotency_due WHERE awaits = 'lease'`))
	require.Equal(t, 3*limit, pgtest.Get[int](t, db, `SELECT count(*) FROM idempotency_due WHERE awaits = 'window'`))
}
