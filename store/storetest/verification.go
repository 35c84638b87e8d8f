package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

var verification = []story{
	{"every unknown outcome is due at once, the longest due first", func(w *world) {
		_, first := w.unknown("z")
		w.tick(first)
		w.winsFor("m", over)
		w.moves(1, w.store.Abandon, all)
		w.tick(w.record("m"))
		w.unknown("a")
		w.wins("executing")
		w.completes(w.wins("completed"), created("{}"))

		require.Equal(w, []string{"z", "m", "a"}, keys(w.takes(ample, all)))
	}},

	{"what is taken is not taken again before its hold is over", func(w *world) {
		_, seen := w.unknown("K1")
		require.Equal(w, []string{"K1"}, keys(w.takes(over, all)))
		require.Equal(w, []string{"K1"}, keys(w.takes(ample, all)), "the first hold is over")

		require.Empty(w, w.takes(ample, all))
		w.probeIsOvertaken(seen, store.Unknown)
		require.Equal(w, store.Unknown, w.loses("K1").State, "for everyone else it is as it was")
	}},

	{"a hold ends by itself", func(w *world) {
		w.unknown("K1")
		taken := w.takes(200*time.Millisecond, all)
		require.Len(w, taken, 1)

		w.until("the hold is over", func() bool {
			again := w.takes(ample, all)
			if len(again) == 0 {
				return false
			}
			require.GreaterOrEqual(w, again[0].Now.Sub(taken[0].Now), 200*time.Millisecond-time.Millisecond, "by the database's clock")
			return true
		})
	}},

	{"takers take as many as they ask for", func(w *world) {
		for n := range 5 {
			w.unknown(keyOf(n))
		}
		require.Len(w, w.takes(ample, 2), 2)
		require.Len(w, w.takes(ample, 2), 2)
		require.Len(w, w.takes(ample, 2), 1)
		require.Empty(w, w.takes(ample, 2))
	}},

	{"of many takers at once each record has one", func(w *world) {
		const records, takers = 20, 8
		engines := []store.Engine{w.engine, w.another()}
		for n := range records {
			w.unknown(keyOf(n))
		}
		var mu sync.Mutex
		taken := map[string]int{}
		var done sync.WaitGroup
		for n := range takers {
			done.Go(func() {
				// One that finds nothing may have passed by what others were looking at:
				// the first who comes after them finds the rest.
				for range records {
					batch, err := engines[n%2].TakeUnknown(w.Context(), operations, ample, 3)
					if err != nil {
						w.Errorf("taker %d: %v", n, err)
						return
					}
					mu.Lock()
					for _, record := range batch {
						taken[record.Key]++
					}
					mu.Unlock()
				}
			})
		}
		done.Wait()

		require.Len(w, taken, records)
		for key, times := range taken {
			require.Equal(w, 1, times, key)
			require.Equal(w, 1, w.record(key).Verifications, key)
		}
	}},

	{"of clients and the background at once one verifies", func(w *world) {
		const rounds, clients = 10, 6
		stores := []*store.Store{w.store, store.New(w.another())}
		for round := range rounds {
			_, seen := w.unknown(keyOf(round))
			var taken atomic.Int64
			var done sync.WaitGroup
			for n := range clients {
				done.Go(func() {
					var overtaken *store.OvertakenError
					switch err := stores[n%2].TakeForProbe(w.Context(), seen, ample); {
					case err == nil:
						taken.Add(1)
					case !errors.As(err, &overtaken):
						w.Errorf("client %d: %v", n, err)
					}
				})
			}
			done.Go(func() {
				batch, err := stores[round%2].TakeUnknown(w.Context(), operations, ample, all)
				if err != nil {
					w.Errorf("background: %v", err)
				}
				taken.Add(int64(len(batch)))
			})
			done.Wait()
			require.EqualValues(w, 1, taken.Load(), "round %d", round)
		}
	}},

	{"what is put off is due when the delay is over", func(w *world) {
		_, seen := w.unknown("K1")
		for delay, due := range map[time.Duration]bool{ample: false, 0: true, time.Nanosecond: true} {
			w.until("it may be probed, also before it is due", func() bool {
				return w.store.TakeForProbe(w.Context(), seen, ample) == nil
			})
			require.NoError(w, w.store.PutOff(w.Context(), seen, delay))
			if !due {
				require.Empty(w, w.takes(ample, all), delay)
				continue
			}
			w.until("it is due", func() bool { return len(w.takes(ample, all)) == 1 })
			require.NoError(w, w.store.PutOff(w.Context(), seen, ample))
		}
	}},

	{"what is given up is never due again, and may be probed all the same", func(w *world) {
		for key, never := range map[string]time.Duration{"a nanosecond": -1, "a microsecond": -time.Microsecond, "an hour": -time.Hour} {
			_, seen := w.unknown(key)
			require.Len(w, w.takes(over, all), 1, key)
			require.NoError(w, w.store.PutOff(w.Context(), seen, never))

			require.Empty(w, w.takes(ample, all), key)
			w.until("it may be probed", func() bool { return w.store.TakeForProbe(w.Context(), seen, over) == nil })
			require.Empty(w, w.takes(ample, all), key)
			require.Equal(w, store.Unknown, w.state(key), "it stays unknown")
		}
	}},

	{"between two probes of a record there is a pause", func(w *world) {
		_, seen := w.unknown("K1")
		for _, delay := range []time.Duration{store.ProbeGap, ample, -1} {
			w.until("it may be probed", func() bool { return w.store.TakeForProbe(w.Context(), seen, ample) == nil })
			before := time.Now()
			require.NoError(w, w.store.PutOff(w.Context(), seen, delay))
			w.probeIsOvertaken(seen, store.Unknown)
			w.until("the pause is over", func() bool { return w.store.TakeForProbe(w.Context(), seen, over) == nil })
			require.Greater(w, time.Since(before), store.ProbeGap/2, delay)
		}
	}},

	{"what was put off goes to the end of the line", func(w *world) {
		_, first := w.unknown("first")
		w.unknown("second")
		w.tick(first)
		require.NoError(w, w.store.PutOff(w.Context(), first, 0))

		require.Equal(w, []string{"second", "first"}, keys(w.takes(ample, all)))
	}},

	{"whoever holds it may settle it, and anyone else may be faster", func(w *world) {
		for key, settle := range map[string]func(*store.Claim, *store.Record) error{
			"verifier": func(_ *store.Claim, r *store.Record) error {
				return w.store.Resolve(w.Context(), r, asCompleted("found"))
			},
			"late": func(c *store.Claim, _ *store.Record) error { return c.Complete(w.Context(), created("late")) },
			"hold over": func(_ *store.Claim, r *store.Record) error {
				return w.store.Resolve(w.Context(), r, asCompleted("found"))
			},
		} {
			claim, seen := w.unknown(key)
			hold := ample
			if key == "hold over" {
				hold = over
			}
			taken := w.takes(hold, all)
			require.Len(w, taken, 1, key)
			require.NoError(w, settle(claim, taken[0]), key)

			settled := w.record(key)
			require.Equal(w, store.Completed, settled.State, key)
			require.Empty(w, w.takes(over, all), key)
			w.probeIsOvertaken(seen, store.Completed)
			require.NoError(w, w.store.PutOff(w.Context(), seen, 0), "somebody has settled it")
			w.unchanged(settled, w.record(key), key)
		}
	}},

	{"what is gone is not verified", func(w *world) {
		claim, seen := w.unknown("K1")
		require.NoError(w, claim.Release(w.Context()))

		var overtaken *store.OvertakenError
		require.ErrorAs(w, w.store.TakeForProbe(w.Context(), seen, ample), &overtaken)
		require.Nil(w, overtaken.Record)
		require.NoError(w, w.store.PutOff(w.Context(), seen, 0))

		_, present := w.unknown("K1")
		w.probeIsOvertaken(seen, store.Unknown)
		require.NoError(w, w.store.PutOff(w.Context(), seen, -1), "of a record that is gone")
		w.unchanged(present, w.record("K1"), "as it was")
		require.Len(w, w.takes(ample, all), 1, "and due")
	}},

	{"what is executing cannot be taken", func(w *world) {
		w.wins("K1")
		executing := w.record("K1")

		w.probeIsOvertaken(executing, store.Executing)
		require.NoError(w, w.store.PutOff(w.Context(), executing, 0))

		w.unchanged(executing, w.record("K1"), "as it was")
		require.Empty(w, w.takes(over, all))
	}},

	{"a taker gets the operations that it asks for", func(w *world) {
		for n, operation := range []string{"create-order", "Create-Order", "pay", `a","b`, "a,b", "{a}", ""} {
			d := draft("K1", token(n))
			d.Operation = operation
			w.unknownOf(d)
		}
		for operation, asked := range map[string][]string{
			"none": {}, "unheard of": {"refund"}, "a list in one": {"pay,create-order"},
		} {
			taken, err := w.engine.TakeUnknown(w.Context(), asked, over, all)
			require.NoError(w, err)
			require.Empty(w, taken, operation)
		}
		taken, err := w.engine.TakeUnknown(w.Context(), nil, over, all)
		require.NoError(w, err)
		require.Empty(w, taken)

		taken, err = w.engine.TakeUnknown(w.Context(), []string{"pay", `a","b`, "{a}", ""}, ample, all)
		require.NoError(w, err)
		var got []string
		for _, record := range taken {
			got = append(got, record.Operation)
		}
		require.ElementsMatch(w, []string{"pay", `a","b`, "{a}", ""}, got)
	}},

	{"a record counts how often it was verified, and says nothing else of it", func(w *world) {
		_, seen := w.unknown("K1")
		require.Zero(w, seen.Verifications)

		taken := w.takes(over, all)

		require.Equal(w, 1, taken[0].Verifications)
		before := *seen
		before.Verifications = 1
		w.unchanged(&before, taken[0], "the record that is taken")
		w.unchanged(&before, w.record("K1"), "and as it is read")
		require.NoError(w, w.store.TakeForProbe(w.Context(), seen, over))
		require.NoError(w, w.store.PutOff(w.Context(), seen, 0))
		require.Equal(w, 2, w.record("K1").Verifications)
		w.until("it is due", func() bool { taken = w.takes(ample, all); return len(taken) == 1 })
		require.Equal(w, 3, taken[0].Verifications)
	}},
}

var operations = []string{identity("").Operation}

func (w *world) takes(hold time.Duration, limit int) []*store.Record {
	w.Helper()
	taken, err := w.store.TakeUnknown(w.Context(), operations, hold, limit)
	require.NoError(w, err)
	for _, record := range taken {
		require.Equal(w, store.Unknown, record.State)
		require.Nil(w, record.Response)
	}
	return taken
}

// probeIsOvertaken requires that the record cannot be taken, and that whoever
// tries is told what is there.
func (w *world) probeIsOvertaken(seen *store.Record, now store.State) {
	w.Helper()
	before := w.recordOf(seen.Identity)
	var overtaken *store.OvertakenError
	require.ErrorAs(w, w.store.TakeForProbe(w.Context(), seen, ample), &overtaken)
	require.NotNil(w, overtaken.Record)
	require.Equal(w, now, overtaken.Record.State)
	w.unchanged(before, overtaken.Record, "who is told is told what is there")
	w.unchanged(before, w.recordOf(seen.Identity), "and has changed nothing")
}

func keys(records []*store.Record) []string {
	var keys []string
	for _, record := range records {
		keys = append(keys, record.Key)
	}
	return keys
}
