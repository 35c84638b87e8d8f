package sqlite

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

func TestKeptResponseIsNotNilHoweverEmpty(t *testing.T) {
	for name, c := range map[string]struct{ kept, want *store.Response }{
		"not kept":    {nil, nil},
		"empty":       {&store.Response{}, &store.Response{Header: http.Header{}, Body: []byte{}}},
		"header only": {&store.Response{Header: http.Header{"A": {"1"}}}, &store.Response{Header: http.Header{"A": {"1"}}, Body: []byte{}}},
		"body only":   {&store.Response{Body: []byte{0}}, &store.Response{Header: http.Header{}, Body: []byte{0}}},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, Config{})
			draft := newDraft("K1")
			claim(t, e, draft)
			require.NoError(t, e.Complete(t.Context(), draft.Identity, draft.Token,
				store.Completion{Status: http.StatusNoContent, Response: c.kept, ReplayFor: time.Hour}))

			record := read(t, e, draft.Identity)
			require.Equal(t, store.Completed, record.State)
			require.Equal(t, c.want, record.Response)

			// What is not kept is NULL in the database.
			var null bool
			require.NoError(t, e.readers.QueryRowContext(t.Context(),
				"SELECT response_header IS NULL AND response_body IS NULL FROM idempotency_records").Scan(&null))
			require.Equal(t, c.kept == nil, null)
		})
	}
}

func TestIdentityIsBytes(t *testing.T) {
	e := open(t, Config{})
	keys := []string{"K", "k", "K ", "K\x00", "K\x00a", "K\x00b", "K\xff", "K\xfe", "É", "E\u0301", "1", "1.0", ""}
	for _, key := range keys {
		claim(t, e, newDraft(key))
	}
	for _, key := range keys {
		record := read(t, e, newDraft(key).Identity)
		require.Equal(t, newDraft(key).Fingerprint, record.Fingerprint, "%q", key)
	}
}

func TestTimesAreTheDatabasesOwn(t *testing.T) {
	e := open(t, Config{})
	draft := newDraft("K1")
	before := time.Now().Truncate(time.Millisecond)
	claim(t, e, draft)
	record := read(t, e, draft.Identity)

	require.False(t, record.ClaimedAt.Before(before))
	require.False(t, record.ClaimedAt.After(record.Now))
	require.Equal(t, draft.Lease, record.LeaseUntil.Sub(record.ClaimedAt))
	require.False(t, record.Now.After(time.Now()))
}

func TestDurationIsNeverCutShort(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0:                                     0,
		time.Nanosecond:                       1,
		time.Millisecond:                      1,
		time.Millisecond + time.Nanosecond:    2,
		-time.Millisecond - time.Nanosecond:   -1,
		time.Duration(1<<63 - 1):              9223372036855,
		30*time.Second + 250*time.Microsecond: 30001,
	} {
		require.Equal(t, want, milliseconds(d), d)
	}
}

func TestCountsAreThoseOfTheRows(t *testing.T) {
	e := open(t, Config{})
	ctx := t.Context()
	over := -time.Hour

	for _, key := range []string{"executing", "released", "unknown", "late", "abandoned", "completed", "expired", "purged"} {
		draft := newDraft(key)
		if key == "abandoned" {
			draft.Lease = over
		}
		claim(t, e, draft)
		answer := completion(key)
		switch key {
		case "released":
			require.NoError(t, e.Release(ctx, draft.Identity, draft.Token))
		case "unknown", "late":
			require.NoError(t, e.MarkUnknown(ctx, draft.Identity, draft.Token, store.Doubt{Reason: "timeout"}))
		case "expired":
			answer.ReplayFor = over
		case "purged":
			answer.ReplayFor, answer.KeepFor = over, time.Nanosecond
		}
		switch key {
		case "late", "completed", "expired", "purged":
			require.NoError(t, e.Complete(ctx, draft.Identity, draft.Token, answer))
		}
	}
	sweeps := []struct {
		sweep func(context.Context, int) (int, error)
		moves int
	}{{e.Abandon, 1}, {e.Expire, 2}, {e.Purge, 1}}
	for _, s := range sweeps {
		moved, err := s.sweep(ctx, 10)
		require.NoError(t, err)
		require.Equal(t, s.moves, moved)
	}

	stats, err := e.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, map[store.State]int64{
		store.Executing: 1, store.Unknown: 2, store.Completed: 2, store.Expired: 1,
	}, stats.Records)

	var differences int
	require.NoError(t, e.readers.QueryRowContext(ctx, `
		SELECT count(*) FROM idempotency_counts c
		WHERE records <> (SELECT count(*) FROM idempotency_records r WHERE r.state = c.state)`).Scan(&differences))
	require.Zero(t, differences)
}

// Whatever is asked often finds its rows by an index, in the order it wants.
func TestStatementsUseTheirIndexes(t *testing.T) {
	e := open(t, Config{})
	byKey := []any{"acme", "alice", "create-order", "K1", []byte("token"), 1, 1, nil, nil, 1, 1}
	for name, c := range map[string]struct {
		sql   string
		args  []any
		index string
	}{
		"read":     {selectRecord, byKey[:4], "sqlite_autoindex_idempotency_records_1"},
		"complete": {complete, byKey, "sqlite_autoindex_idempotency_records_1"},
		"release":  {release, byKey[:5], "sqlite_autoindex_idempotency_records_1"},
		"abandon":  {abandon, []any{10}, "idempotency_records_lease"},
		"expire":   {expire, []any{10}, "idempotency_records_window"},
		"purge":    {purge, []any{10}, "idempotency_records_tombstone"},
		"age":      {ageOfOldestUnknown, nil, "idempotency_records_unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			text := planOf(t, e, c.sql, c.args...)
			require.Contains(t, text, c.index)
			require.NotContains(t, text, "SCAN", "reads the whole table")
			require.NotContains(t, text, "TEMP B-TREE FOR ORDER BY", "sorts")
		})
	}
}

// What a claim costs does not grow with the records of its actor: each that it looks
// at, it looks up by its key.
func TestClaimWithinQuotasLooksUpOneRecordForEachSlot(t *testing.T) {
	e := open(t, Config{})
	byKey := []any{"acme", "alice", "create-order", "K1", []byte("token"), 1, 1, nil, nil, 1, nil, "[]"}
	for name, c := range map[string]struct {
		sql  string
		args []any
	}{
		"claim":                {claimWithin, byKey},
		"free slots of actor":  {freeSlotsOfActor, byKey[:3]},
		"free slots of tenant": {freeSlotsOfTenant, byKey[:2]},
		"purge slots":          {purgeSlots, []any{10}},
	} {
		t.Run(name, func(t *testing.T) {
			lookUps := 0
			for _, line := range strings.Split(planOf(t, e, c.sql, c.args...), "\n") {
				if strings.Contains(line, " r ") {
					lookUps++
					require.Contains(t, line, "(tenant=? AND actor=? AND operation=? AND key=?)")
				}
			}
			require.NotZero(t, lookUps)
		})
	}
}

func planOf(t *testing.T, e *Engine, sql string, args ...any) string {
	t.Helper()
	rows, err := e.writer.db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+sql, args...)
	require.NoError(t, err)
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
		plan = append(plan, detail)
	}
	require.NoError(t, rows.Err())
	return strings.Join(plan, "\n")
}
