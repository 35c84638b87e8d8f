package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// A record that cannot be understood keeps its key closed: it is an error for
// everyone, and never "no record".
func TestRecordThatCannotBeReadKeepsItsKeyClosed(t *testing.T) {
	db := pgtest.New(t)
	for name, damage := range map[string]string{
		"a state of a later version": `records SET state = 'suspended'`,
		"a fingerprint cut short":    `records SET fingerprint = substr(fingerprint, 2)`,
		"a header that is no header": `responses SET header = 'Location /orders/1'`,
		"no replay window":           `records SET replay_until = NULL`,
		"no status":                  `records SET status = NULL`,
		"a status that is none":      `records SET status = 0`,
	} {
		t.Run(name, func(t *testing.T) {
			db.Empty(t)
			s := newSceneWith(t, db, patient(db))
			s.has(ample, answer(ample))
			s.rivalRuns(`UPDATE idempotency_` + damage)()

			var corrupt *store.CorruptError
			_, err := s.store.Read(t.Context(), identity)
			require.ErrorAs(t, err, &corrupt)
			claim, held, err := s.store.Claim(t.Context(), identity, fingerprint, "", ample)
			require.ErrorAs(t, err, &corrupt)
			require.Nil(t, claim)
			require.Nil(t, held)
			require.Equal(t, 1, s.records())
		})
	}
}
