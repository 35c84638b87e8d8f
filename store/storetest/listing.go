package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

var listing = []story{
	{"the oldest unknown outcome comes first", func(w *world) {
		for _, key := range []string{"c", "a", "b"} {
			_, record := w.unknown(key)
			w.tick(record)
		}
		w.wins("executing")

		require.Equal(w, []string{"c", "a", "b"}, keys(w.lists(store.Filter{State: store.Unknown})))
	}},

	{"how old an unknown outcome is counts from when it became unknown", func(w *world) {
		const age = 50 * time.Millisecond
		_, record := w.unknown("K1")
		older := store.Filter{State: store.Unknown, OlderThan: age}
		require.Empty(w, w.lists(store.Filter{State: store.Unknown, OlderThan: ample}))

		w.until("it is older", func() bool { return len(w.lists(older)) == 1 })

		require.GreaterOrEqual(w, w.record("K1").Now.Sub(record.SettledAt), age)
		require.NoError(w, w.store.TakeForProbe(w.Context(), record, over))
		require.NoError(w, w.store.PutOff(w.Context(), record, -1))
		require.Len(w, w.lists(older), 1, "no verification makes it younger")
	}},

	{"all others come in the order of their identity", func(w *world) {
		ids := scattered()
		for n, id := range ids {
			won, _, err := w.engine.Claim(w.Context(), store.Draft{Identity: id, Fingerprint: fingerprint("K"), Token: token(n), Lease: ample})
			require.NoError(w, err)
			require.True(w, won)
		}
		slices.SortFunc(ids, compareIdentities)

		require.Equal(w, ids, identities(w.lists(store.Filter{State: store.Executing})))
		for n, record := range w.lists(store.Filter{State: store.Executing}) {
			if n%2 == 0 {
				require.NoError(w, w.engine.Complete(w.Context(), record.Identity, record.Token, created("{}")))
			}
		}
		require.Len(w, w.lists(store.Filter{State: store.Executing}), len(ids)/2)
		require.Len(w, w.lists(store.Filter{State: store.Completed}), len(ids)-len(ids)/2)
	}},

	{"tenant and operation narrow a list down", func(w *world) {
		ids := scattered()
		for n, id := range ids {
			w.unknownOf(store.Draft{Identity: id, Fingerprint: fingerprint("K"), Token: token(n), Lease: ample, NaturalKey: fmt.Sprint(n)})
			done := id
			done.Key = "completed " + id.Key
			won, _, err := w.engine.Claim(w.Context(), store.Draft{Identity: done, Fingerprint: fingerprint("K"), Token: token(n), Lease: ample})
			require.NoError(w, err)
			require.True(w, won)
			require.NoError(w, w.engine.Complete(w.Context(), done, token(n), created("{}")))
		}
		for _, state := range []store.State{store.Unknown, store.Completed} {
			for _, f := range []store.Filter{{}, {Tenant: "b"}, {Operation: "pay"}, {Tenant: "b", Operation: "pay"}, {Tenant: "nobody"}} {
				want := 0
				for _, id := range ids {
					if (f.Tenant == "" || f.Tenant == id.Tenant) && (f.Operation == "" || f.Operation == id.Operation) {
						want++
					}
				}
				f.State = state
				got := w.lists(f)
				require.Len(w, got, want, "%+v", f)
				for _, record := range got {
					require.True(w, f.Tenant == "" || f.Tenant == record.Tenant)
					require.True(w, f.Operation == "" || f.Operation == record.Operation)
				}
			}
		}
	}},

	{"page after page shows each record once", func(w *world) {
		for n, id := range scattered() {
			for prefix, lease := range map[string]time.Duration{"abandoned ": over, "executing ": ample} {
				d := store.Draft{Identity: id, Fingerprint: fingerprint("K"), Token: token(n), Lease: lease}
				d.Key = prefix + id.Key
				won, _, err := w.engine.Claim(w.Context(), d)
				require.NoError(w, err)
				require.True(w, won)
			}
		}
		w.moves(len(scattered()), w.store.Abandon, all) // so that all are unknown since the same moment
		for _, f := range []store.Filter{{State: store.Unknown}, {State: store.Executing}, {State: store.Unknown, Tenant: "b"}, {State: store.Executing, Operation: "pay"}} {
			whole := w.lists(f)
			require.Greater(w, len(whole), 5)
			for _, limit := range []int{1, 3, len(whole)} {
				paged := f
				paged.Limit = limit
				var pages []*store.Record
				for {
					page := w.lists(paged)
					require.LessOrEqual(w, len(page), limit)
					if len(page) == 0 {
						break
					}
					pages = append(pages, page...)
					paged.After = page[len(page)-1]
				}
				require.Equal(w, identities(whole), identities(pages), "%+v", f)
			}
		}
	}},

	{"a page begins after a record that is gone by then", func(w *world) {
		for _, key := range []string{"a", "b", "c"} {
			_, record := w.unknown(key)
			w.tick(record)
		}
		first := w.lists(store.Filter{State: store.Unknown, Limit: 2})
		require.Equal(w, []string{"a", "b"}, keys(first))
		require.NoError(w, w.store.Resolve(w.Context(), first[1], asNotExecuted))

		require.Equal(w, []string{"c"}, keys(w.lists(store.Filter{State: store.Unknown, After: first[1]})))
	}},

	{"a record is listed as it is read, but for its response", func(w *world) {
		w.winsNatural(identity("executing"), "R-1")
		w.unknown("unknown")
		w.completes(w.wins("completed"), created("a secret"))
		expired := created("a secret")
		expired.ReplayFor = over
		w.completes(w.wins("expired"), expired)
		for _, swept := range []bool{false, true} {
			for _, state := range store.States {
				listed := w.lists(store.Filter{State: state})
				require.Equal(w, []string{string(state)}, keys(listed), "swept: %t", swept)
				require.Nil(w, listed[0].Response)
				read := *w.record(string(state))
				read.Response = nil
				w.unchanged(&read, listed[0], string(state))
			}
			if !swept {
				w.moves(1, w.store.Expire, all)
			}
		}
	}},

	{"every other state has an age as well", func(w *world) {
		const half = -over / 2
		w.wins("executing")
		w.completes(w.wins("completed"), created("{}"))
		expired := created("{}")
		expired.ReplayFor = over // so that it has been expired for an hour
		w.completes(w.wins("expired"), expired)
		for state, old := range map[store.State]int{store.Executing: 0, store.Completed: 0, store.Expired: 1} {
			require.Len(w, w.lists(store.Filter{State: state, OlderThan: half}), old, state)
			require.Empty(w, w.lists(store.Filter{State: state, OlderThan: 2 * ample}), state)
			require.Len(w, w.lists(store.Filter{State: state}), 1, state)
		}
	}},

	{"a state that nobody knows has no records", func(w *world) {
		w.unknown("K1")
		require.Empty(w, w.lists(store.Filter{State: "suspended"}))
		require.Empty(w, w.lists(store.Filter{}))
	}},
}

// scattered are identities in no order, in which every part decides somewhere.
func scattered() (ids []store.Identity) {
	for _, key := range []string{"2", "10", "a", "B"} {
		for _, operation := range []string{"pay", "create-order"} {
			for _, actor := range []string{"bob", "Alice"} {
				for _, tenant := range []string{"b", "a|b"} {
					ids = append(ids, store.Identity{Scope: store.Scope{Tenant: tenant, Actor: actor, Operation: operation}, Key: key})
				}
			}
		}
	}
	return ids
}

// compareIdentities compares byte by byte, part by part.
func compareIdentities(a, b store.Identity) int {
	for _, part := range [][2]string{{a.Tenant, b.Tenant}, {a.Actor, b.Actor}, {a.Operation, b.Operation}, {a.Key, b.Key}} {
		if c := strings.Compare(part[0], part[1]); c != 0 {
			return c
		}
	}
	return 0
}

func identities(records []*store.Record) (ids []store.Identity) {
	for _, record := range records {
		ids = append(ids, record.Identity)
	}
	return ids
}

// lists asks for a page; a filter without a limit wants all.
func (w *world) lists(f store.Filter) []*store.Record {
	w.Helper()
	if f.Limit == 0 {
		f.Limit = all
	}
	records, err := w.store.List(w.Context(), f)
	require.NoError(w, err)
	return records
}
