package sqlite

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// idleWriter is a writer that takes and commits jobs only when the test does it.
func idleWriter(t *testing.T) *writer {
	path := databasePath(t)
	e, err := Open(t.Context(), Config{Path: path})
	require.NoError(t, err)
	require.NoError(t, e.Close())

	db := openPool(dsn(path, DefaultTimeout, writing), 1)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return newWriter(db)
}

func newJob(sql string, args ...any) *job {
	return &job{steps: []step{{sql, args}}, result: make(chan result, 1)}
}

func claimJob(d store.Draft) *job {
	return newJob(insertClaim, d.Tenant, d.Actor, d.Operation, d.Key, d.Token[:],
		d.Fingerprint.Algorithm, d.Fingerprint.Version, d.Fingerprint.Sum[:], nil, milliseconds(d.Lease), nil)
}

func TestStatementsOfOneCommitFollowEachOther(t *testing.T) {
	w := idleWriter(t)
	first, second := newDraft("K1"), newDraft("K1")
	batch := []*job{
		claimJob(first),
		claimJob(second),
		newJob(release, second.Tenant, second.Actor, second.Operation, second.Key, second.Token[:]),
		newJob(release, first.Tenant, first.Actor, first.Operation, first.Key, first.Token[:]),
		claimJob(second),
	}
	w.commit(batch)

	var moved []int64
	for _, j := range batch {
		r := <-j.result
		require.NoError(t, r.err)
		moved = append(moved, r.moved)
	}
	require.Equal(t, []int64{1, 0, 0, 1, 1}, moved)
}

func TestFailingStatementIsNotHeldAgainstOthersOfItsCommit(t *testing.T) {
	w := idleWriter(t)
	withoutKey := claimJob(newDraft("K2"))
	withoutKey.steps[0].args[3] = nil // NOT NULL
	batch := []*job{
		claimJob(newDraft("K1")),
		withoutKey,
		newJob("UPDATE no_such_table SET a = 1"),
		claimJob(newDraft("K3")),
	}
	results := make([]result, len(batch))
	w.commit(append([]*job(nil), batch...))
	for i, j := range batch {
		results[i] = <-j.result
	}

	require.Equal(t, result{moved: 1}, results[0])
	requireFailure(t, store.Rejected, failed("claiming", results[1].err))
	requireFailure(t, store.Rejected, failed("updating", results[2].err))
	require.Equal(t, result{moved: 1}, results[3])
	var records int
	require.NoError(t, w.db.QueryRowContext(t.Context(), "SELECT count(*) FROM idempotency_records").Scan(&records))
	require.Equal(t, 2, records)
}

func TestTransactionThatCannotBeginFailsAllOfItsStatements(t *testing.T) {
	w := idleWriter(t)
	require.NoError(t, w.prepare(claimJob(newDraft("K1")))) // a closed pool compiles nothing
	require.NoError(t, w.db.Close())
	batch := []*job{claimJob(newDraft("K1")), claimJob(newDraft("K2"))}
	w.commit(batch)
	for _, j := range batch {
		requireFailure(t, store.Unavailable, failed("claiming", (<-j.result).err))
	}
}

func TestStatementsThatWaitShareACommit(t *testing.T) {
	w := idleWriter(t)
	const clients = 20
	var callers sync.WaitGroup
	for n := range clients {
		callers.Go(func() {
			j := claimJob(newDraft(fmt.Sprint("K", n)))
			moved, err := w.writeAll(context.Background(), "claiming record", j.steps...)
			if err != nil || moved != 1 {
				t.Error(moved, err)
			}
		})
	}
	// As run does it, but only once everybody is there.
	var batch []*job
	for len(batch) < clients {
		batch = append(batch, w.gather(<-w.jobs)...)
	}
	w.commit(batch)
	callers.Wait()
}

func TestBatchIsBounded(t *testing.T) {
	w := newWriter(nil)
	w.jobs = make(chan *job, 2*maxBatch) // so that all of them wait
	for range 2 * maxBatch {
		w.jobs <- &job{}
	}
	require.Len(t, w.gather(<-w.jobs), maxBatch)
	require.Len(t, w.jobs, maxBatch)
}

func TestDeadlineInTheQueueIsOverloaded(t *testing.T) {
	w := newWriter(nil) // takes nothing
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := w.write(ctx, "claiming record", insertClaim)
	requireFailure(t, store.Overloaded, err)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestCallerThatGoesAwayIsUnavailable(t *testing.T) {
	t.Run("in the queue", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := newWriter(nil).write(ctx, "claiming record", insertClaim)
		requireFailure(t, store.Unavailable, err)
	})
	t.Run("during the commit", func(t *testing.T) {
		w := newWriter(nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-w.jobs // taken, and never answered
			cancel()
		}()
		_, err := w.write(ctx, "claiming record", insertClaim)
		requireFailure(t, store.Unavailable, err)
	})
}

func TestClosedWriterTakesNothing(t *testing.T) {
	w := newWriter(nil)
	go w.run()
	w.close()
	_, err := w.write(t.Context(), "claiming record", insertClaim)
	require.ErrorIs(t, err, errClosed)
	requireFailure(t, store.Unavailable, err)
}
