package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

var contention = []story{
	{"replays, completions and sweeps at once end in one execution and one record for each key", func(w *world) {
		const keys, callers = 12, 16
		stores := []*store.Store{w.store, store.New(w.another())}
		var executions [keys]atomic.Int64
		settled := make(chan struct{})

		// Time's work goes on without a break for as long as there are callers.
		var sweepers sync.WaitGroup
		for _, sweep := range []sweep{stores[0].Abandon, stores[1].Expire, stores[0].Expire, stores[1].Purge} {
			sweepers.Go(func() {
				for {
					select {
					case <-settled:
						return
					default:
					}
					if _, err := sweep(w.Context(), 2); err != nil {
						w.Errorf("sweeping: %v", err)
						return
					}
				}
			})
		}

		// Every caller wants every key, and comes back until it has an answer.
		var waiting sync.WaitGroup
		for caller := range callers {
			waiting.Go(func() {
				for n := range keys {
					key := (n + caller) % keys
					if err := w.executeOrReplay(stores[caller%2], key, &executions[key]); err != nil {
						w.Errorf("caller %d, key %d: %v", caller, key, err)
						return
					}
				}
			})
		}
		waiting.Wait()
		close(settled)
		sweepers.Wait()

		for key := range keys {
			record := w.record(keyOf(key))
			require.NotNil(w, record, "key %d", key)
			require.EqualValues(w, 1, executions[key].Load(), "key %d", key)
			want := store.Completed
			if expiresAtOnce(key) {
				want = store.Expired
			}
			require.Equal(w, want, record.State, "key %d", key)
			require.Equal(w, fmt.Sprintf("/orders/%d", key), record.Resource)
		}
	}},

	{"of claims and releases at once never two hold the key", func(w *world) {
		const callers, turns = 8, 20
		stores := []*store.Store{w.store, store.New(w.another())}
		var holders, won atomic.Int64
		var done sync.WaitGroup
		for caller := range callers {
			done.Go(func() {
				for range turns {
					claim, _, err := stores[caller%2].Claim(w.Context(), identity("K1"), fingerprint("K1"), "", ample)
					if err != nil && !errors.Is(err, store.ErrContended) {
						w.Errorf("claiming: %v", err)
						return
					}
					if claim == nil {
						continue
					}
					won.Add(1)
					if n := holders.Add(1); n != 1 {
						w.Errorf("%d hold the key", n)
					}
					holders.Add(-1)
					if err := claim.Release(w.Context()); err != nil {
						w.Errorf("releasing: %v", err)
						return
					}
				}
			})
		}
		done.Wait()

		require.Positive(w, won.Load())
		require.Nil(w, w.record("K1"), "the last one has left")
	}},

	{"of settlements at once exactly one counts", func(w *world) {
		for round := range 10 {
			key := keyOf(round)
			claim := w.wins(key)
			id, token := identity(key), w.record(key).Token
			var done sync.WaitGroup
			var taken atomic.Int64
			settle := func(transition func() error) {
				done.Go(func() {
					switch err := transition(); {
					case err == nil:
						taken.Add(1)
					case !errors.Is(err, store.ErrNotHeld):
						w.Errorf("round %d: %v", round, err)
					}
				})
			}
			for n := range 4 {
				settle(func() error {
					return w.engine.Complete(w.Context(), id, token, created(fmt.Sprint(n)))
				})
			}
			settle(func() error { return w.engine.Release(w.Context(), id, token) })
			done.Wait()

			require.EqualValues(w, 1, taken.Load(), "round %d", round)
			if record := w.record(key); record != nil {
				require.Equal(w, store.Completed, record.State)
				w.unchangedBy(key, func() error { return claim.Complete(w.Context(), created("again")) })
			}
		}
	}},
}

// executeOrReplay is what a gateway does with one request: it executes if it
// wins, and asks again while another executes.
func (w *world) executeOrReplay(s *store.Store, key int, executions *atomic.Int64) error {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	id := identity(keyOf(key))
	for {
		claim, held, err := s.Claim(ctx, id, fingerprint(id.Key), "", ample)
		switch {
		case err != nil:
			return err
		case claim != nil:
			executions.Add(1)
			completion := created(fmt.Sprintf("answer %d", key))
			completion.Resource = fmt.Sprintf("/orders/%d", key)
			if expiresAtOnce(key) {
				completion.ReplayFor = over
			}
			if key%4 == 3 { // some are in doubt first
				if err := claim.MarkUnknown(ctx, store.Doubt{Reason: "slow"}); err != nil {
					return err
				}
			}
			return claim.Complete(ctx, completion)
		case held.State == store.Completed:
			if want := fmt.Sprintf("answer %d", key); string(held.Response.Body) != want {
				return fmt.Errorf("replayed %q", held.Response.Body)
			}
			return nil
		case held.State == store.Expired:
			if held.Response != nil {
				return errors.New("an expired response was replayed")
			}
			return nil
		}
	}
}

func keyOf(n int) string { return fmt.Sprintf("K%03d", n) }

func expiresAtOnce(key int) bool { return key%2 == 1 }

// unchangedBy requires that a repeated transition is a success, and changes
// nothing.
func (w *world) unchangedBy(key string, transition func() error) {
	w.Helper()
	before := w.record(key)
	require.NoError(w, transition())
	w.unchanged(before, w.record(key), "repeated")
}
