package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// The INSERT is answered, and the disk gives nothing more to read.
func TestClaimThatIsLostIsKnownNotToBeWonIfNothingCanBeRead(t *testing.T) {
	first := newDraft("K1")
	first.NaturalKey, first.Quotas = "R-1", []store.Quota{{Max: 1}}
	for name, rival := range map[string]func(*store.Draft){
		"the key is taken":               func(d *store.Draft) { d.Key = "K1" },
		"the business identity is taken": func(d *store.Draft) { d.NaturalKey = "R-1" },
		"the quota is used up":           func(d *store.Draft) { d.Quotas = first.Quotas },
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, Config{})
			claim(t, e, first)
			require.NoError(t, e.readers.Close())
			second := newDraft("K2")
			rival(&second)

			won, held, err := e.Claim(t.Context(), second)

			require.False(t, won)
			require.Nil(t, held)
			requireFailure(t, store.Unavailable, err)
			var notWon *store.NotWonError
			require.ErrorAs(t, err, &notWon)
		})
	}
}
