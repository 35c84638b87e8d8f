package postgres_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// rivals are claims that cannot be won while natural("K1") is executing, the only one at
// once that some of them allow.
var rivals = map[string]store.Draft{
	"together":                          draft(otherToken),
	"within a quota":                    within(draft(otherToken), 100),
	"for the same business identity":    natural("K1", otherToken),
	"of another key for the same":       natural("K2", otherToken),
	"of another key, beyond a quota":    within(natural("K3", otherToken), 1),
	"of a new business, beyond a quota": within(store.Draft{Identity: other("K4"), Token: otherToken, Lease: ample}, 1),
}

func within(d store.Draft, most int) store.Draft {
	d.Quotas = []store.Quota{{Max: most}}
	return d
}

func other(key string) store.Identity {
	id := identity
	id.Key = key
	return id
}

func requireNotWon(t *testing.T, err error) {
	t.Helper()
	var notWon *store.NotWonError
	require.ErrorAs(t, err, &notWon)
	var failed *store.EngineError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, store.Unavailable, failed.Failure)
}

// The INSERT is answered, and the connection dies before its transaction is.
func TestClaimThatWasAnsweredIsKnownNotToBeWon(t *testing.T) {
	for name, rival := range rivals {
		t.Run(name, func(t *testing.T) {
			s, link := newWiredScene(t)
			won, _, err := s.engine.Claim(t.Context(), within(natural("K1", rightToken), 1))
			require.NoError(t, err)
			require.True(t, won)

			link.LoseReply(commit)
			won, held, err := s.engine.Claim(t.Context(), rival)

			require.Equal(t, 1, link.Lost())
			require.False(t, won)
			require.Nil(t, held)
			requireNotWon(t, err)
		})
	}
}

// No later try gets as far as the one that lost.
func TestClaimThatIsLostIsSaidToBeHoweverOftenItFailsAfterwards(t *testing.T) {
	for _, name := range []string{"together", "within a quota", "for the same business identity"} {
		t.Run(name, func(t *testing.T) {
			d := rivals[name]
			s, link := newWiredScene(t)
			var claiming <-chan error
			s.play(
				step{"another instance is executing", s.rivalRuns(insertNatural)},
				step{"somebody locks its record", s.rivalRuns(begin, lock)},
				step{"the key comes back", func() {
					claiming = begins(func() error {
						_, _, err := s.store.Claim(t.Context(), d.Identity, d.Fingerprint, d.NaturalKey, ample, d.Quotas...)
						return err
					})
				}},
				step{"the claim is lost, and its read waits", s.waits},
				step{"the network breaks", link.Cut},
				step{"the claim is known not to be won", func() { requireNotWon(t, <-claiming) }},
			)
		})
	}
}

// What this process has seen settled is no new key, whether or not it could compete.
func TestClaimOfARecordThatWasSeenSettledIsNotTakenForThatOfANewKey(t *testing.T) {
	for name, rival := range map[string]store.Draft{"together": rivals["together"], "within a quota": rivals["within a quota"]} {
		t.Run(name, func(t *testing.T) {
			s, link := newWiredScene(t)
			s.has(ample, answer(ample))

			link.Cut()
			_, _, err := s.engine.Claim(t.Context(), rival)

			requireNotWon(t, err)
		})
	}
}

func TestClaimThatMayHaveBeenWonIsNotSaidToBeLost(t *testing.T) {
	for name, fail := range map[string]func(*pgtest.Link){
		"nobody has got it":           (*pgtest.Link).Cut,
		"its acknowledgement is lost": func(l *pgtest.Link) { l.LoseReply(commit) },
	} {
		for _, d := range []store.Draft{draft(rightToken), within(draft(rightToken), 1), natural("K1", rightToken)} {
			s, link := newWiredScene(t)

			fail(link)
			_, _, err := s.engine.Claim(t.Context(), d)

			var failed *store.EngineError
			require.ErrorAs(t, err, &failed, name)
			var notWon *store.NotWonError
			require.False(t, errors.As(err, &notWon), name)
		}
	}
}
