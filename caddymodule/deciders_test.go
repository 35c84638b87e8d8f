package caddymodule_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLateAnswerOrVerifierDecides(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "upstream_timeout 5m", "wait 1m", verify("after 1ms", "timeout 1m"))
		lateAnswerTold, verifierTold := 0, 0

		for _, d := range disputes(lateAnswer, verifier) {
			verifierFirst := d.ordered && d.first == verifier
			if !verifierFirst {
				g.holdProbes()
			}
			firsts := g.lateAnswers(d)
			retries := g.postAll(d) // each is verified, and executed if there is no order
			switch {
			case verifierFirst:
				retries.wait()
			case d.ordered:
				g.upstream.awaitHeld(2 * groupSize)
				g.upstream.Release(groupSize) // the oldest, which the probes are not
				firsts.wait()
			default:
				g.upstream.awaitHeld(2 * groupSize)
			}
			g.upstream.Disarm()
			g.upstream.Release(0)

			winners := g.decided(d, retries)
			for _, first := range firsts {
				require.Equal(t, map[bool]int{true: 201, false: 429}[d.made], first().status, "the upstream's own answer")
			}
			if d.made {
				lateAnswerTold += count(winners, verifier)
				g.awaitTold(lateAnswer, lateAnswerTold)
				verifierTold += count(winners, lateAnswer)
				g.awaitTold(verifier, verifierTold)
			}
		}
	})
}

func TestLateAnswerOrOperatorDecides(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "upstream_timeout 5m")
		lateAnswerTold := 0

		for _, d := range disputes(lateAnswer, olga) {
			firsts := g.lateAnswers(d)
			var ruled rulings
			if d.first == lateAnswer {
				g.upstream.Release(0)
				if d.ordered {
					firsts.wait()
				}
				ruled = g.rule(d, olga)
			} else {
				ruled = g.rule(d, olga)
				if d.ordered {
					ruled.wait()
				}
				g.upstream.Release(0)
			}
			ruled.wait()
			firsts.wait()

			winners := g.decided(d, g.postAll(d))
			ruled.told(t, olga, winners)
			if d.made {
				lateAnswerTold += count(winners, olga)
				g.awaitTold(lateAnswer, lateAnswerTold)
			}
		}
	})
}

func TestOperatorOrVerifierDecides(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s, "wait 1m", verify("after 1ms", "timeout 1m"))
		verifierTold := 0

		for _, d := range disputes(olga, verifier) {
			g.holdProbes()
			g.lostAnswers(d)
			retries := g.postAll(d) // each is verified, and executed if there is no order
			g.upstream.awaitHeld(groupSize)
			g.upstream.Disarm()
			var ruled rulings
			if d.first == verifier {
				g.upstream.Release(0)
				if d.ordered {
					retries.wait()
				}
				ruled = g.rule(d, olga)
			} else {
				ruled = g.rule(d, olga)
				if d.ordered {
					ruled.wait()
				}
				g.upstream.Release(0)
			}

			winners := g.decided(d, retries)
			ruled.told(t, olga, winners)
			if d.made {
				verifierTold += count(winners, olga)
				g.awaitTold(verifier, verifierTold)
			}
		}
	})
}

func TestOneOperatorOfTwoDecides(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		for _, d := range disputes(olga, otto) {
			g.lostAnswers(d)
			one := g.rule(d, d.first)
			if d.ordered {
				one.wait()
			}
			other := g.rule(d, d.second)
			one.wait()
			other.wait()

			winners := g.decided(d, g.postAll(d))
			one.told(t, d.first, winners)
			other.told(t, d.second, winners)
		}
	})
}

// Of two who contradict each other, one is wrong. There are no two orders all the
// same, and a retry gets what the audit says.
func TestOneOperatorOfTwoWhoContradictEachOtherDecides(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)

		for _, d := range disputes(olga, otto) {
			if d.made || d.ordered {
				continue
			}
			g.lostAnswers(d)
			var right, wrong rulings
			for _, key := range d.keys {
				wrong = append(wrong, g.consultLater("POST", "/idempotency/resolve", named(key, because("I saw it", fields{
					"by": otto, "as": "completed", "status": 201, "location": "/orders/elsewhere",
				}))))
			}
			right = g.rule(d, olga)
			wrong.wait()
			right.wait()

			var winners []string
			for i, key := range d.keys {
				retry := g.post(key, order(i))
				require.Equal(t, 201, retry.status, "%s: %s", key, retry.body)
				audit := g.show(key, nil).ok().audit()
				require.Len(t, audit, 1, key)
				winners = append(winners, audit[0].By)
				made := map[string]int{olga: 1, otto: 0}[audit[0].By]
				require.Equal(t, made, g.upstream.made(key), key)
				require.Equal(t, made == 0, retry.isReplay(), key)
			}
			right.told(t, olga, winners)
			wrong.told(t, otto, winners)
		}
	})
}
