package postgres_test

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
)

// TestOperationsPageSettlesUnknownOutcomes runs the statements of
// docs/operations.md as an operator would.
func TestOperationsPageSettlesUnknownOutcomes(t *testing.T) {
	statements := sqlOf(t, "../../docs/operations.md")
	require.Len(t, statements, 4)
	list, executed, notExecuted, grants := statements[0], statements[1], statements[2], statements[3]

	db := pgtest.New(t)
	engine := open(t, postgres.Config{DSN: db.DSN})
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	s := store.New(engine)
	operator := db.Conn(t)

	ids := map[string]store.Identity{}
	for _, actor := range []string{"alice", "bob"} {
		id := store.Identity{Scope: store.Scope{Tenant: "default", Actor: actor, Operation: "create-order"}, Key: "K1"}
		claim, _, err := s.Claim(t.Context(), id, store.Fingerprint{}, "", time.Minute)
		require.NoError(t, err)
		require.NotNil(t, claim)
		require.Zero(t, affected(t, operator, executed)+affected(t, operator, notExecuted), "only what is unknown is settled by hand")
		require.NoError(t, claim.MarkUnknown(t.Context(), store.Doubt{Status: 500, Reason: "status 500"}))
		if ids[actor] = id; actor == "alice" {
			require.EqualValues(t, 1, affected(t, operator, executed))
		}
	}

	record, err := s.Read(t.Context(), ids["alice"])
	require.NoError(t, err)
	require.Equal(t, store.Completed, record.State)
	require.Equal(t, "/orders/ord-1", record.Resource)
	require.Equal(t, 201, record.Status)
	require.Nil(t, record.Response)

	rows, err := operator.Query(t.Context(), list)
	require.NoError(t, err)
	unknown, err := pgx.CollectRows(rows, pgx.RowToMap)
	require.NoError(t, err)
	require.Len(t, unknown, 1)
	require.Equal(t, "bob", unknown[0]["actor"])
	require.Equal(t, ids["bob"].KeyDigest(), unknown[0]["key_digest"])

	require.EqualValues(t, 1, affected(t, operator, notExecuted))
	_, err = s.Read(t.Context(), ids["bob"])
	require.ErrorIs(t, err, store.ErrNoRecord)

	_, err = operator.Exec(t.Context(), "BEGIN; CREATE ROLE gateway; "+grants+" ROLLBACK")
	require.NoError(t, err)
}

func affected(t *testing.T, conn *pgx.Conn, sql string) int64 {
	t.Helper()
	tag, err := conn.Exec(t.Context(), sql)
	require.NoError(t, err)
	return tag.RowsAffected()
}

func sqlOf(t *testing.T, document string) (statements []string) {
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	for _, block := range regexp.MustCompile("(?ms)^```sql\n(.*?)^```$").FindAllSubmatch(text, -1) {
		statements = append(statements, string(block[1]))
	}
	return statements
}
