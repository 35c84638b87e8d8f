package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// crowd is a number of calls that share a transaction.
type crowd struct {
	*scene
	drafts []store.Draft
	claims []claimed // by draft
	errs   []error   // of settlements, by draft
}

// newCrowd has claims of keys of their own.
func newCrowd(s *scene, n int) *crowd {
	c := &crowd{scene: s, claims: make([]claimed, n), errs: make([]error, n)}
	for i := range n {
		d := draft(store.Token{1, byte(i)})
		d.Key = fmt.Sprint("member ", i)
		c.drafts = append(c.drafts, d)
	}
	return c
}

// claiming are the calls that claim.
func (c *crowd) claiming() (calls []func()) {
	for i, d := range c.drafts {
		calls = append(calls, func() {
			c.claims[i].won, c.claims[i].held, c.claims[i].err = c.engine.Claim(c.Context(), d)
		})
	}
	return calls
}

// completing are the calls that complete.
func (c *crowd) completing() (calls []func()) {
	for i, d := range c.drafts {
		calls = append(calls, func() {
			c.errs[i] = c.engine.Complete(c.Context(), d.Identity, d.Token, *answer(ample))
		})
	}
	return calls
}

// haveWon requires that every claim but one was won.
func (c *crowd) haveWon(but int) {
	c.Helper()
	for i, claim := range c.claims {
		if i != but {
			require.NoError(c, claim.err)
			require.True(c, claim.won, "member %d", i)
		}
	}
}

const nobody = -1

func TestPoisonedMemberOfABatchFailsAlone(t *testing.T) {
	const poisoned = 3
	c := newCrowd(newScene(t), 8)
	c.drafts[poisoned].Key = "no text \x00"

	c.engine.Gather(c.claiming()...)

	c.haveWon(poisoned)
	var failed *store.EngineError
	require.ErrorAs(t, c.claims[poisoned].err, &failed)
	require.Equal(t, store.Rejected, failed.Failure)
	require.Equal(t, 7, c.records())
}

func TestSettlementThatTheDatabaseRefusesFailsAlone(t *testing.T) {
	const poisoned = 3
	c := newCrowd(newScene(t), 8)
	c.engine.Gather(c.claiming()...)
	c.haveWon(nobody)

	calls := c.completing()
	calls[poisoned] = func() {
		d := c.drafts[poisoned]
		c.errs[poisoned] = c.engine.MarkUnknown(t.Context(), d.Identity, d.Token, store.Doubt{Reason: "no text \x00"})
	}
	c.engine.Gather(calls...)

	var failed *store.EngineError
	require.ErrorAs(t, c.errs[poisoned], &failed)
	require.Equal(t, store.Rejected, failed.Failure)
	for i, err := range c.errs {
		if i != poisoned {
			require.NoError(t, err)
		}
	}
	require.Equal(t, 7, pgtest.Get[int](t, c.db, `SELECT count(*) FROM idempotency_records WHERE state = 'completed'`))
}

// Somebody has a row locked for as long as he likes. Whoever needs it waits, and
// nobody else.
func TestMemberThatWaitsForALockKeepsNobodyElse(t *testing.T) {
	s := newScene(t)
	c := newCrowd(s, 8)
	c.drafts = append(c.drafts, draft(otherToken)) // of the key that the rival has
	c.claims = append(c.claims, claimed{})
	last := len(c.drafts) - 1
	calls := c.claiming()
	var others sync.WaitGroup
	others.Add(last)
	for i := range last {
		call := calls[i]
		calls[i] = func() { defer others.Done(); call() }
	}
	s.rivalRuns(begin, insert)()

	done := make(chan struct{})
	go func() { defer close(done); c.engine.Gather(calls...) }()

	others.Wait()
	c.haveWon(last)
	s.waits()
	s.rivalRuns(rollback)()
	<-done
	require.True(t, c.claims[last].won)
}

func TestLostAcknowledgementOfABatchIsResolvedForEachMember(t *testing.T) {
	s, link := newWiredScene(t)
	const n = 8
	won := make([]*store.Claim, n)
	errs := make([]error, n)
	each := func(call func(i int) error) (calls []func()) {
		for i := range n {
			calls = append(calls, func() { errs[i] = call(i) })
		}
		return calls
	}

	link.LoseReply(commit)
	s.engine.Gather(each(func(i int) (err error) {
		id := identity
		id.Key = fmt.Sprint("member ", i)
		won[i], _, err = s.store.Claim(t.Context(), id, fingerprint, "", ample)
		return err
	})...)

	require.Equal(t, 1, link.Lost())
	require.Equal(t, n, s.records())
	for i := range n {
		require.NoError(t, errs[i])
		require.NotNil(t, won[i], "found again by its token")
	}

	link.LoseReply(commit)
	s.engine.Gather(each(func(i int) error {
		switch i % 3 {
		case 0:
			return won[i].Release(t.Context())
		case 1:
			return won[i].MarkUnknown(t.Context(), store.Doubt{Reason: "timeout"})
		}
		return won[i].Complete(t.Context(), *answer(ample))
	})...)

	require.Equal(t, 2, link.Lost())
	require.Equal(t, make([]error, n), errs)
	require.Equal(t, n-3, s.records())
	require.Equal(t, 3, pgtest.Get[int](t, s.db, `SELECT count(*) FROM idempotency_records WHERE state = 'unknown'`))
	require.Equal(t, 2, pgtest.Get[int](t, s.db, `SELECT count(*) FROM idempotency_records WHERE state = 'completed'`))
}

func TestClaimOfAClientThatIsGoneBeforeItsBatchIsSentLeavesNothingBehind(t *testing.T) {
	const gone = 2
	c := newCrowd(newScene(t), 4)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	calls := c.claiming()
	calls[gone] = func() {
		_, _, c.claims[gone].err = c.engine.Claim(ctx, c.drafts[gone])
		close(left)
	}

	c.engine.GatherThen(func() { leave(); <-left }, calls...)

	require.ErrorIs(t, c.claims[gone].err, context.Canceled)
	c.haveWon(gone)
	require.Equal(t, 3, c.records())
}

// Whoever leaves when his claim has been sent learns what came of it all the same:
// else a release that follows could overtake it, and leave the key closed.
func TestClaimOfAClientThatLeavesWhenItsBatchIsSentIsStillProved(t *testing.T) {
	s := newScene(t)
	s.rivalRuns(begin, insert)()
	ctx, leave := context.WithCancel(t.Context())
	claiming := make(chan claimed, 1)
	go func() {
		var c claimed
		c.won, c.held, c.err = s.engine.Claim(ctx, draft(otherToken))
		claiming <- c
	}()
	s.waits()

	leave()
	s.rivalRuns(commit)()

	c := <-claiming
	require.False(t, c.won)
	require.True(t, c.held != nil || c.err != nil)
}

func TestOfClaimsOfOneKeyInABatchOneWins(t *testing.T) {
	c := newCrowd(newScene(t), 16)
	for i := range c.drafts {
		c.drafts[i].Key = identity.Key
	}

	c.engine.Gather(c.claiming()...)

	winners := 0
	for _, claim := range c.claims {
		require.NoError(t, claim.err)
		if claim.won {
			winners++
		} else {
			require.Equal(t, store.Executing, claim.held.State)
		}
	}
	require.Equal(t, 1, winners)
	require.Equal(t, 1, c.records())
}

// Instances that claim the same keys in whatever order wait for each other, and
// never in a circle. Releases, which make claims wait too, come in between.
func TestBatchesOfTwoInstancesNeverDeadlock(t *testing.T) {
	const rounds, keys = 20, 24
	db := pgtest.New(t)
	db.Set(t, "deadlock_timeout", "5ms") // sooner than a batch gives up waiting
	one, other := newSceneWith(t, db, patient(db)), newSceneWith(t, db, patient(db))
	for round := range rounds {
		crowds := []*crowd{newCrowd(one, keys), newCrowd(other, keys)}
		var both sync.WaitGroup
		for i, c := range crowds {
			for k := range c.drafts {
				c.drafts[k].Token = store.Token{byte(i + 1), byte(round), byte(k)}
			}
			calls := c.claiming()
			for k, d := range c.drafts {
				claim := calls[k]
				calls[k] = func() {
					claim()
					if c.claims[k].won {
						c.errs[k] = c.engine.Release(t.Context(), d.Identity, d.Token)
					}
				}
			}
			if i == 1 {
				slices.Reverse(calls)
			}
			both.Go(func() { c.engine.Gather(calls...) })
		}
		both.Wait()
		for _, c := range crowds {
			for k := range c.drafts {
				require.NoError(t, c.claims[k].err)
				require.NoError(t, c.errs[k])
			}
		}
	}
	require.Zero(t, one.records())
	require.NoError(t, one.engine.Close()) // a session tells what it did when it ends, at the latest
	require.NoError(t, other.engine.Close())
	require.Zero(t, pgtest.Get[int](t, db, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`))
}

func TestClaimsBeyondTheQueueAreRefusedAtOnce(t *testing.T) {
	s := newScene(t)
	s.has(ample, nil)
	empty := s.engine.FillQueue()

	d := draft(otherToken)
	d.Key = "one too many"
	_, _, err := s.engine.Claim(t.Context(), d)
	empty()

	var failed *store.EngineError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, store.Overloaded, failed.Failure)
	require.False(t, store.Retryable(err), "trying again would only make the queue longer")
	require.NoError(t, s.engine.Complete(t.Context(), identity, rightToken, *answer(ample)))
	require.Equal(t, 1, s.records())
}

func TestClaimThatHasWaitedForTooLongIsRefusedAndItsKeyStaysOpen(t *testing.T) {
	s := newScene(t)
	c := newCrowd(s, 4)

	c.engine.GatherThen(func() { c.engine.Age(time.Hour) }, c.claiming()...)

	for _, claim := range c.claims {
		var failed *store.EngineError
		require.ErrorAs(t, claim.err, &failed)
		require.Equal(t, store.Overloaded, failed.Failure)
	}
	require.Zero(t, s.records())
}

func TestResponseTooLargeToShareIsReplayedAllTheSame(t *testing.T) {
	s := newScene(t)
	large := answer(ample)
	large.Response.Body = make([]byte, 100<<10)
	s.has(ample, large)

	won, held, err := s.engine.Claim(t.Context(), draft(otherToken))

	require.NoError(t, err)
	require.False(t, won)
	require.Equal(t, large.Response, held.Response)
}

// The hint that a record is settled may be wrong: it was purged, or belongs to
// another key of the same hash. The claim competes all the same.
func TestHintThatIsWrongCostsNoClaim(t *testing.T) {
	s := newScene(t)
	s.has(ample, answer(ample))
	s.db.Exec(t, `DELETE FROM idempotency_records`)

	won, held, err := s.engine.Claim(t.Context(), draft(otherToken))

	require.NoError(t, err)
	require.Nil(t, held)
	require.True(t, won)
}

func TestOfTwoCompletionsInABatchTheOneThatIsMadeIsToldSo(t *testing.T) {
	s := newScene(t)
	s.has(ample, nil)
	answers := []*store.Completion{answer(ample), answer(ample)}
	answers[1].Response.Body = []byte(`{"id":2}`)
	errs := make([]error, len(answers))
	var calls []func()
	for i := range answers {
		calls = append(calls, func() { errs[i] = s.engine.Complete(t.Context(), identity, rightToken, *answers[i]) })
	}

	s.engine.Gather(calls...)

	made := slices.Index(errs, nil)
	require.NotEqual(t, -1, made)
	require.Equal(t, store.ErrNotHeld, errs[1-made])
	require.Equal(t, answers[made].Response, s.record().Response)
}
