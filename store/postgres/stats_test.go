package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
)

func (s *scene) stats() map[store.State]int64 {
	s.Helper()
	stats, err := s.engine.Stats(s.Context())
	require.NoError(s, err)
	return stats.Records
}

func TestSmallTableIsCountedExactly(t *testing.T) {
	s := newScene(t)
	s.rivalRuns(manyRecords)()
	require.Equal(t, map[store.State]int64{
		store.Executing: 0, store.Unknown: 20, store.Completed: 19980, store.Expired: 0,
	}, s.stats())
}

// What is estimated is settled. What somebody has to look after is always exact.
func TestLargeTableIsEstimatedFromItsStatistics(t *testing.T) {
	s := newScene(t)
	s.engine.EstimateAlways()
	s.rivalRuns(manyRecords, `ANALYZE idempotency_records`)()
	s.has(ample, nil)

	records := s.stats()

	require.EqualValues(t, 1, records[store.Executing])
	require.EqualValues(t, 20, records[store.Unknown])
	require.InEpsilon(t, 19980, records[store.Completed], 0.05)
	require.Zero(t, records[store.Expired], "a state that no sample found")
}

func TestLargeTableThatWasNeverAnalyzedIsEstimatedFromItsSize(t *testing.T) {
	s := newScene(t)
	s.engine.EstimateAlways()
	s.rivalRuns(`ALTER TABLE idempotency_records SET (autovacuum_enabled = false)`, manyRecords)()

	records := s.stats()

	require.EqualValues(t, 20, records[store.Unknown])
	require.InEpsilon(t, 19980, records[store.Completed], 0.5, "the right order of magnitude")
	require.Zero(t, records[store.Expired])
}

func TestEveryPartitionIsEstimated(t *testing.T) {
	db := pgtest.New(t)
	applyPartitioned(t, db, 4)
	s := newSceneWith(t, db, patient(db))
	s.engine.EstimateAlways()
	s.rivalRuns(manyRecords, `UPDATE idempotency_records SET operation = 'operation ' || right(key, 1)`, `ANALYZE idempotency_records`)()

	records := s.stats()

	require.EqualValues(t, 20, records[store.Unknown])
	require.InEpsilon(t, 19980, records[store.Completed], 0.3, "the update has moved them, and left old versions")
}
