package postgres_test

import (
	"context"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
)

// TestOperationsPageGrantsAreEnoughToServe gives a role what docs/operations.md
// says, and nothing else.
func TestOperationsPageGrantsAreEnoughToServe(t *testing.T) {
	statements := sqlOf(t, "../../docs/operations.md")
	require.Len(t, statements, 1)
	db := pgtest.New(t)
	owner := open(t, postgres.Config{DSN: db.DSN})
	require.NoError(t, owner.Close())

	var grants []string
	for _, m := range regexp.MustCompile(`GRANT ([^;]+) TO gateway;`).FindAllStringSubmatch(statements[0], -1) {
		grants = append(grants, m[1])
	}
	require.NotEmpty(t, grants)
	engine := open(t, postgres.Config{DSN: db.Role(t, grants...), SkipMigrations: true})
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	s := store.New(engine)

	id := store.Identity{Scope: store.Scope{Tenant: "default", Actor: "alice", Operation: "create-order"}, Key: "K1"}
	claim, _, err := s.Claim(t.Context(), id, store.Fingerprint{}, "", time.Minute)
	require.NoError(t, err)
	require.NoError(t, claim.MarkUnknown(t.Context(), store.Doubt{Reason: "timeout"}))
	record, err := s.Read(t.Context(), id)
	require.NoError(t, err)
	require.NoError(t, s.Resolve(t.Context(), record, store.Resolution{By: "olivia", Reason: "not found"}))
	claim, _, err = s.Claim(t.Context(), id, store.Fingerprint{}, "", time.Minute)
	require.NoError(t, err)
	require.NoError(t, claim.Complete(t.Context(), *answer(over)))
	held, err := s.Pin(t.Context(), "secret", []byte("first"))
	require.NoError(t, err)
	require.Equal(t, "first", string(held))
	for _, sweep := range []func(context.Context, int) (int, error){s.Abandon, s.Expire, s.Purge} {
		_, err := sweep(t.Context(), 10)
		require.NoError(t, err)
	}
}

func sqlOf(t *testing.T, document string) (statements []string) {
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	for _, block := range regexp.MustCompile("(?ms)^```sql\n(.*?)^```$").FindAllSubmatch(text, -1) {
		statements = append(statements, string(block[1]))
	}
	return statements
}
