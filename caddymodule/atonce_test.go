package caddymodule_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// For one business intent come, at the same moment: a request, the same one again, one
// with its key and another body, and one with another key and its natural key. Whoever
// is executed, the others are told the truth about it.

const (
	intents         = 200
	intentsTogether = 20 // whose requests come at the same moment
)

// What a request can be told, in the words of problems where it is none.
var (
	executed = problem(201, "executed")
	replayed = problem(201, "replayed")
	reused   = problem(422, "key-reused")
	taken    = problem(409, "business-key-taken")
	unknown  = problem(409, "outcome-unknown")
	expired  = problem(410, "response-expired")
)

func (a answer) says() problemAnswer {
	a.t.Helper()
	require.NoError(a.t, a.err)
	switch {
	case a.status != 201:
		return a.problem()
	case a.isReplay():
		return replayed
	}
	return executed
}

// rivals are the answers to the requests for one intent.
type rivals struct {
	n                             int
	one, same, changed, elsewhere answer
}

func (r rivals) say() [4]problemAnswer {
	return [4]problemAnswer{r.one.says(), r.same.says(), r.changed.says(), r.elsewhere.says()}
}

func intentKey(n int) string { return fmt.Sprint("K", n) }

func intentBody(n, amount int) string { return requisition(fmt.Sprint("R-", n), amount) }

// compete sends the requests for some intents, all at once, while something else is
// done, and hands the answers to each over.
func (g *gateway) compete(while func(n int), check func(r rivals)) {
	g.t.Helper()
	for from := 0; from < intents; from += intentsTogether {
		var all [][4]func() answer
		for n := from; n < from+intentsTogether; n++ {
			key, body := intentKey(n), intentBody(n, 100)
			all = append(all, [4]func() answer{
				g.later(key, body), g.later(key, body), g.later(key, intentBody(n, 200)), g.later(fmt.Sprint("L", n), body),
			})
			while(n)
		}
		for i, a := range all {
			check(rivals{from + i, a[0](), a[1](), a[2](), a[3]()})
		}
	}
}

func nothingElse(int) {}

// owner is whose request was executed: that of the key, the changed one, or that of the
// other key.
type owner int

const (
	nobody owner = iota
	ofKey
	changed
	ofOtherKey
)

// around is what they are told if the owner is told this.
func (o owner) around(told problemAnswer) [4]problemAnswer {
	switch o {
	case changed:
		return [4]problemAnswer{reused, reused, told, taken}
	case ofOtherKey:
		return [4]problemAnswer{taken, taken, taken, told}
	}
	return [4]problemAnswer{told, told, reused, taken}
}

// owner is who was executed; at most one was.
func (r rivals) owner(t *testing.T) (who owner) {
	t.Helper()
	for i, said := range r.say() {
		if said == executed {
			require.Equal(t, nobody, who, "intent %d is executed twice: %v", r.n, r.say())
			who = [4]owner{ofKey, ofKey, changed, ofOtherKey}[i]
		}
	}
	return who
}

// executedOnce checks that one was executed and the others were told so.
func (r rivals) executedOnce(t *testing.T) owner {
	t.Helper()
	who := r.owner(t)
	require.NotEqual(t, nobody, who, "intent %d: %v", r.n, r.say())
	if who != ofKey {
		require.Equal(t, who.around(executed), r.say(), "intent %d", r.n)
		return who
	}
	first, again := r.one, r.same
	if first.isReplay() {
		first, again = again, first
	}
	again.replays(first)
	require.Equal(t, [2]problemAnswer{reused, taken}, [2]problemAnswer{r.changed.says(), r.elsewhere.says()}, "intent %d", r.n)
	return who
}

func TestOneOfManyForABusinessIntentIsExecutedAndTheOthersAreToldSo(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "natural_key requisition_no", "wait 20s")

		owners := map[int]owner{}
		g.compete(nothingElse, func(r rivals) { owners[r.n] = r.executedOnce(t) })
		g.settled(intents)

		g.compete(nothingElse, func(r rivals) {
			require.Equal(t, owners[r.n].around(replayed), r.say(), "intent %d", r.n)
		})

		s.windowsAreOver(t)
		until(t, "all are expired", func() bool {
			for _, r := range s.records(t) {
				if r.State != "expired" {
					return false
				}
			}
			return true
		})
		g.compete(nothingElse, func(r rivals) {
			require.Equal(t, owners[r.n].around(expired), r.say(), "intent %d", r.n)
		})
		require.Equal(t, intents, g.upstream.Stats().Executions)
	})
}

// loseAll makes the outcome of each intent unknown.
func (g *gateway) loseAll(how string) {
	g.t.Helper()
	for from := 0; from < intents; from += intentsTogether {
		var all []func() answer
		for n := from; n < from+intentsTogether; n++ {
			all = append(all, g.later(intentKey(n), intentBody(n, 100), fault(how)))
		}
		for _, a := range all {
			require.Equal(g.t, problem(502, "outcome-unknown"), a().problem())
		}
	}
}

func TestManyForABusinessIntentAreToldWhatTheOperatorResolved(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "natural_key requisition_no", "wait 20s")
		g.loseAll("vanish") // committed, and not answered
		location := map[string]string{}
		for _, o := range g.upstream.Orders() {
			location[o.ClientRef] = "/orders/" + o.ID
		}

		var resolved rulings
		g.compete(func(n int) {
			resolved = append(resolved, g.consultLater("POST", "/idempotency/resolve", named(intentKey(n), because("it is there", fields{
				"as": "completed", "status": 201, "location": location[intentKey(n)],
			}))))
		}, func(r rivals) {
			for _, own := range []answer{r.one, r.same} {
				require.Contains(t, []problemAnswer{unknown, replayed}, own.says(), "intent %d", r.n)
			}
			require.Equal(t, [2]problemAnswer{reused, taken}, [2]problemAnswer{r.changed.says(), r.elsewhere.says()}, "intent %d", r.n)
		})
		for _, ruling := range resolved {
			ruling().ok()
		}

		g.compete(nothingElse, func(r rivals) {
			require.Equal(t, ofKey.around(replayed), r.say(), "intent %d", r.n)
			require.Equal(t, location[intentKey(r.n)], r.same.header.Get("Location"))
		})
		g.settled(intents)
	})
}

func TestManyForABusinessIntentThatTheOperatorReleasedAreExecutedOnce(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "natural_key requisition_no", "wait 20s")
		g.loseAll("reset") // before the commit

		owners := map[int]owner{}
		var released rulings
		g.compete(func(n int) {
			released = append(released, g.consultLater("POST", "/idempotency/release", named(intentKey(n), because("it is not there", nil))))
		}, func(r rivals) {
			owners[r.n] = r.owner(t)
			for _, own := range []answer{r.one, r.same} {
				require.Contains(t, []problemAnswer{unknown, executed, replayed, reused, taken}, own.says(), "intent %d", r.n)
			}
			require.Contains(t, []problemAnswer{reused, executed, taken}, r.changed.says(), "intent %d", r.n)
			require.Contains(t, []problemAnswer{taken, executed}, r.elsewhere.says(), "intent %d", r.n)
		})
		for _, ruling := range released {
			ruling().ok()
		}

		g.compete(nothingElse, func(r rivals) {
			if owners[r.n] == nobody {
				r.executedOnce(t)
			} else {
				require.Equal(t, owners[r.n].around(replayed), r.say(), "intent %d", r.n)
			}
		})
		stats := g.upstream.Stats()
		require.Equal(t, [2]int{2 * intents, intents}, [2]int{stats.Executions, stats.Orders}, "the first of each made nothing")
	})
}
