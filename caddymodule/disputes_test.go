package caddymodule_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/examples/orders/service"
)

// An unknown outcome is settled by the upstream's late answer, by the verifier or by
// an operator, whoever is first. Two of them decide about each outcome here, at the
// same moment and one after the other, and each decides by what the service did.

// Outcomes that they decide about: so many in each group, and so many groups in which
// both decide at the same moment.
const (
	groupSize = 10
	groups    = 10
)

// Those who decide, by what the audit says; a late answer is not in it.
const (
	lateAnswer = ""
	verifier   = "verifier"
	olga       = "olga"
	otto       = "otto"
)

// disputed are unknown outcomes about which two decide.
type disputed struct {
	made    bool // by the service: an order of each
	ordered bool // the first one has decided before the second one begins
	first   string
	second  string
	keys    []string
}

// disputes are all that two may have: over what was made and over what was not, at
// the same moment and in each order.
func disputes(one, other string) (all []disputed) {
	add := func(d disputed) {
		for range groupSize {
			d.keys = append(d.keys, fmt.Sprintf("K%d-%d", len(all), len(d.keys)))
		}
		all = append(all, d)
	}
	for _, made := range []bool{true, false} {
		for range groups / 2 {
			add(disputed{made: made, first: one, second: other})
			add(disputed{made: made, first: other, second: one})
		}
		add(disputed{made: made, first: one, second: other, ordered: true})
		add(disputed{made: made, first: other, second: one, ordered: true})
	}
	return all
}

// answers of some requests, each when it is there.
type answers []func() answer

func (a answers) wait() {
	for _, answer := range a {
		answer()
	}
}

func (g *gateway) postAll(d disputed, changes ...with) (all answers) {
	g.t.Helper()
	for i, key := range d.keys {
		all = append(all, g.later(key, order(i), changes...))
	}
	return all
}

// lateAnswers are of requests whose outcome became unknown while the service holds
// what it says to them: that the order is made, or that it is refused.
func (g *gateway) lateAnswers(d disputed) answers {
	g.t.Helper()
	held := "hold, refuse:429"
	if d.made {
		held = "hold-after"
	}
	all := g.postAll(d, fault(held))
	g.upstream.awaitHeld(groupSize)
	g.store.leasesAreOver(g.t)
	until(g.t, "all leases are over", func() bool {
		for _, r := range g.store.records(g.t) {
			if r.State == "executing" {
				return false
			}
		}
		return true
	})
	return all
}

// lostAnswers are of requests whose outcome became unknown for good.
func (g *gateway) lostAnswers(d disputed) {
	g.t.Helper()
	lost := "reset"
	if d.made {
		lost = "vanish"
	}
	for _, first := range g.postAll(d, fault(lost)) {
		require.Equal(g.t, problem(502, "outcome-unknown"), first().problem())
	}
}

// holdProbes until the upstream is disarmed and releases what it holds.
func (g *gateway) holdProbes() {
	g.t.Helper()
	require.NoError(g.t, g.upstream.Arm(service.Arming{Fault: "hold", Times: -1, Method: "GET"}))
}

// rulings are an operator's decisions, each when it is made.
type rulings []func() ruling

func (r rulings) wait() {
	for _, ruling := range r {
		ruling()
	}
}

// rule makes an operator decide about all, by what the service did.
func (g *gateway) rule(d disputed, by string) (all rulings) {
	g.t.Helper()
	location := map[string]string{}
	for _, o := range g.upstream.Orders() {
		location[o.ClientRef] = "/orders/" + o.ID
	}
	for _, key := range d.keys {
		if d.made {
			all = append(all, g.consultLater("POST", "/idempotency/resolve", named(key, because("it is there", fields{
				"by": by, "as": "completed", "status": 201, "location": location[key], "body": bodyBy(by),
			}))))
		} else {
			all = append(all, g.consultLater("POST", "/idempotency/release", named(key, because("it is not there", fields{"by": by}))))
		}
	}
	return all
}

func bodyBy(operator string) string { return fmt.Sprintf(`{"by":%q}`, operator) }

// decided checks that one of them has decided about each outcome: retries, record,
// audit and upstream all say the same. It returns who it was.
func (g *gateway) decided(d disputed, retries answers) (winners []string) {
	g.t.Helper()
	retries.wait()
	orders := map[string][]service.Order{}
	for _, o := range g.upstream.Orders() {
		orders[o.ClientRef] = append(orders[o.ClientRef], o)
	}
	for i, key := range d.keys {
		retry := retries[i]()
		require.NoError(g.t, retry.err, key)
		require.Equal(g.t, 201, retry.status, "%s: %s", key, retry.body)
		require.Len(g.t, orders[key], 1, key)
		location := "/orders/" + orders[key][0].ID
		require.Equal(g.t, location, retry.header.Get("Location"), key)
		g.post(key, order(i)).replays(retry)

		shown := g.show(key, nil).ok()
		require.Equal(g.t, "completed", shown.Record.State, key)
		require.Equal(g.t, location, shown.Record.Resource, key)
		winner := lateAnswer
		if len(shown.Audit) > 0 {
			winner = shown.Audit[0].By
		}
		require.Contains(g.t, []string{d.first, d.second}, winner, key)
		if d.ordered {
			require.Equal(g.t, d.first, winner, key)
		}
		d.agree(g.t, shown, winner)
		require.Equal(g.t, d.made, retry.isReplay(), "%s: executed again unless it was made", key)
		if d.made {
			require.Equal(g.t, answerBy(g.t, winner, orders[key][0]), string(retry.body), key)
		}
		winners = append(winners, winner)
	}
	return winners
}

// agree checks that the audit has the winner's decision, and no other.
func (d disputed) agree(t *testing.T, shown ruling, winner string) {
	t.Helper()
	audit := shown.audit()
	if winner == lateAnswer {
		require.Empty(t, audit)
		return
	}
	require.Len(t, audit, 1)
	audit[0].Reason = ""
	if d.made {
		require.Equal(t, decided{By: winner, From: "unknown", To: "completed", Status: 201}, audit[0])
	} else {
		require.Equal(t, decided{By: winner, From: "unknown", To: "released"}, audit[0])
	}
}

// answerBy is what a retry gets of an order that was made, which shows whose decision
// was stored.
func answerBy(t *testing.T, winner string, made service.Order) string {
	t.Helper()
	whole, err := json.Marshal(made)
	require.NoError(t, err)
	switch winner {
	case lateAnswer:
		return string(whole) + "\n"
	case verifier:
		return string(whole)
	}
	return bodyBy(winner)
}

// told checks that an operator has won where the record says so, and was told
// everywhere else.
func (r rulings) told(t *testing.T, by string, winners []string) {
	t.Helper()
	for i, ruling := range r {
		if winners[i] == by {
			ruling().ok()
		} else {
			require.Contains(t, []string{"409 not-unknown", "404 no-such-record"}, ruling().told(), "%s", ruling().raw)
		}
	}
}

// awaitTold waits until the log has said so many times that the upstream's answer, or
// the verifier, came second about what was made. That it has gone already is no news
// to who wanted to release a key.
func (g *gateway) awaitTold(who string, times int) {
	g.t.Helper()
	line := map[string]string{
		lateAnswer: `"record was settled by somebody else meanwhile"`,
		verifier:   `"unknown outcome was settled by somebody else meanwhile"`,
	}[who]
	told := func() int { return strings.Count(strings.Join(g.process().log.all(), "\n"), line) }
	until(g.t, fmt.Sprintf("%d times: %s", times, line), func() bool { return told() >= times })
	require.Equal(g.t, times, told(), line)
}

func count(winners []string, who string) (n int) {
	for _, winner := range winners {
		if winner == who {
			n++
		}
	}
	return n
}
