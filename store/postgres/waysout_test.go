package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

const (
	// What the rival does to an unknown record.
	completeLate = `WITH completed AS (UPDATE idempotency_records SET state = 'completed', settled_at = now(), status = 201,
			unknown_since = NULL, verify_at = NULL, reason = NULL, resource = '/orders/1',
			replay_until = now() + interval '1 hour'` + withResponse
	doubt    = `UPDATE idempotency_records SET state = 'unknown', settled_at = now(), unknown_since = now(), verify_at = now()`
	fenceOff = `UPDATE idempotency_records SET claim_token = '09000000-0000-0000-0000-000000000000'`
	hold     = `UPDATE idempotency_records SET probing_until = now() + interval '1 hour'`
	decide   = `INSERT INTO idempotency_audit (decision, decided_by, reason, tenant, actor, operation, key, from_state, to_state)
		VALUES ('09000000-0000-0000-0000-000000000000', 'olivia', 'not found', 'acme', 'alice', 'create-order', 'K1', 'unknown', '')`
)

var (
	found    = store.Resolution{Completion: answer(ample), By: "olivia", Reason: "found"}
	notFound = store.Resolution{By: "olivia", Reason: "not found"}
)

// unknown requires that the record's outcome is unknown, and returns it.
func (s *scene) unknown() *store.Record {
	s.Helper()
	s.has(ample, nil)
	require.NoError(s, s.engine.MarkUnknown(s.Context(), identity, rightToken, store.Doubt{Reason: "timeout"}))
	return s.record()
}

func (s *scene) resolves(seen *store.Record, r store.Resolution) <-chan error {
	return begins(func() error { return s.store.Resolve(s.Context(), seen, r) })
}

func (s *scene) decisions() int {
	s.Helper()
	entries, err := s.engine.Audit(s.Context(), identity)
	require.NoError(s, err)
	return len(entries)
}

// takesEveryWayOut goes each of them once.
func (s *scene) takesEveryWayOut() {
	s.Helper()
	for _, resolution := range []store.Resolution{notFound, found} {
		seen := s.unknown()
		listed, err := s.store.List(s.Context(), store.Filter{State: store.Unknown, Limit: 10})
		require.NoError(s, err)
		require.Len(s, listed, 1)
		taken, err := s.store.TakeUnknown(s.Context(), []string{identity.Operation}, over, 10)
		require.NoError(s, err)
		require.Len(s, taken, 1)
		require.NoError(s, s.store.TakeForProbe(s.Context(), seen, ample))
		require.NoError(s, s.store.PutOff(s.Context(), seen, -1))
		before := s.decisions()
		require.NoError(s, s.store.Resolve(s.Context(), seen, resolution))
		require.Equal(s, before+1, s.decisions())
	}
	s.rivalRuns(release)()
}

func TestDecisionWaitsForALateCompletionUnderWayAndIsTold(t *testing.T) {
	for name, resolution := range map[string]store.Resolution{"completed": found, "not executed": notFound} {
		t.Run(name, func(t *testing.T) {
			onEveryIsolation(t, func(t *testing.T, s *scene) {
				seen := s.unknown()
				var decision <-chan error
				s.play(
					step{"the answer comes late", s.rivalRuns(begin, completeLate)},
					step{"an operator decides", func() { decision = s.resolves(seen, resolution) }},
					step{"the operator waits", s.waits},
					step{"the completion commits", s.rivalRuns(commit)},
					step{"the operator is told what is there", func() {
						var overtaken *store.OvertakenError
						require.ErrorAs(s, <-decision, &overtaken)
						require.Equal(s, store.Completed, overtaken.Record.State)
						require.Equal(s, answer(0).Response, overtaken.Record.Response)
						require.Zero(s, s.decisions())
						require.Equal(s, rightToken, s.record().Token)
					}},
				)
			})
		})
	}
}

func TestDecisionCountsIfTheLateCompletionRollsBack(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		seen := s.unknown()
		var decision <-chan error
		s.play(
			step{"the answer comes late", s.rivalRuns(begin, completeLate)},
			step{"an operator decides", func() { decision = s.resolves(seen, found) }},
			step{"the operator waits", s.waits},
			step{"the completion is rolled back", s.rivalRuns(rollback)},
			step{"the decision counts", func() {
				require.NoError(s, <-decision)
				require.Equal(s, 1, s.decisions())
				require.NotEqual(s, rightToken, s.record().Token)
			}},
		)
	})
}

func TestLateCompletionWaitsForADecisionUnderWayAndIsTold(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		claim, _, err := s.store.Claim(s.Context(), identity, fingerprint, "", ample)
		require.NoError(s, err)
		require.NoError(s, claim.MarkUnknown(s.Context(), store.Doubt{}))
		var completion <-chan error
		s.play(
			step{"an operator decides", s.rivalRuns(begin, completeLate, fenceOff)},
			step{"the answer comes late", func() {
				completion = begins(func() error { return claim.Complete(s.Context(), *answer(ample)) })
			}},
			step{"the completion waits", s.waits},
			step{"the decision commits", s.rivalRuns(commit)},
			step{"the claimant is told", func() {
				var lost *store.ClaimLostError
				require.ErrorAs(s, <-completion, &lost)
				require.Equal(s, store.Token{9}, lost.Record.Token)
				require.Equal(s, store.Completed, s.record().State)
			}},
		)
	})
}

func TestClaimWaitsForADecisionThatReleasesTheKey(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		s.unknown()
		var next <-chan claimed
		s.play(
			step{"an operator releases the key", s.rivalRuns(begin, release, decide)},
			step{"a client comes back", func() { next = s.claims(otherToken) }},
			step{"the client waits", s.waits},
			step{"the decision commits", s.rivalRuns(commit)},
			step{"the client has won", func() { require.Equal(s, claimed{won: true}, <-next) }},
		)
	})
}

// The connection of the first try is lost while the server is still at it; the
// second try waits for it, with a snapshot in which there is no decision yet.
func TestDecisionThatIsRepeatedWhileItsFirstTryIsUnderWayIsOne(t *testing.T) {
	for name, story := range map[string]struct {
		first      []string
		resolution store.Resolution
	}{
		"completed":    {[]string{begin, completeLate, fenceOff, decide}, found},
		"not executed": {[]string{begin, release, decide}, notFound},
	} {
		t.Run(name, func(t *testing.T) {
			onEveryIsolation(t, func(t *testing.T, s *scene) {
				s.unknown()
				var again <-chan error
				s.play(
					step{"the first try is under way", s.rivalRuns(story.first...)},
					step{"it is repeated", func() {
						again = begins(func() error {
							return s.engine.Resolve(s.Context(), identity, rightToken, store.Token{9}, story.resolution)
						})
					}},
					step{"the second try waits", s.waits},
					step{"the first try commits", s.rivalRuns(commit)},
					step{"the second try finds the decision", func() {
						require.NoError(s, <-again)
						require.Equal(s, 1, s.decisions())
					}},
				)
			})
		})
	}
}

func TestTakerPassesByWhatOthersAreSettling(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		s.unknown()
		take := func() []*store.Record {
			taken, err := s.store.TakeUnknown(timely(t), []string{identity.Operation}, ample, 10)
			require.NoError(s, err)
			return taken
		}
		s.play(
			step{"the answer comes late", s.rivalRuns(begin, completeLate)},
			step{"a verifier does not wait for it", func() { require.Empty(s, take()) }},
			step{"the completion is rolled back", s.rivalRuns(rollback)},
			step{"a verifier takes the record", func() { require.Len(s, take(), 1) }},
		)
	})
}

func TestProbeWaitsForATakerUnderWayAndIsTold(t *testing.T) {
	onEveryIsolation(t, func(t *testing.T, s *scene) {
		seen := s.unknown()
		var probe <-chan error
		s.play(
			step{"another instance takes the record", s.rivalRuns(begin, hold)},
			step{"a client comes back", func() {
				probe = begins(func() error { return s.store.TakeForProbe(s.Context(), seen, ample) })
			}},
			step{"its probe waits", s.waits},
			step{"the other instance has it", s.rivalRuns(commit)},
			step{"the probe is told", func() {
				var overtaken *store.OvertakenError
				require.ErrorAs(s, <-probe, &overtaken)
				require.Equal(s, store.Unknown, overtaken.Record.State)
				require.Zero(s, s.record().Verifications)
			}},
		)
	})
}

// The commit takes effect, and the connection dies before it is acknowledged.
func TestDecisionWhoseCommitIsNotAcknowledgedIsOne(t *testing.T) {
	for name, resolution := range map[string]store.Resolution{"completed": found, "not executed": notFound} {
		t.Run(name, func(t *testing.T) {
			s, link := newWiredScene(t)
			seen := s.unknown()

			link.LoseReply(commit)
			require.NoError(t, s.store.Resolve(t.Context(), seen, resolution))

			require.Equal(t, 1, link.Lost())
			require.Equal(t, 1, s.decisions())
		})
	}
}

func TestDecisionThatCannotBeAuditedIsNone(t *testing.T) {
	for name, resolution := range map[string]store.Resolution{"completed": found, "not executed": notFound} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			seen := s.unknown()
			s.rivalRuns(`ALTER TABLE idempotency_audit ADD CHECK (decided_by <> 'olivia')`)()

			err := s.store.Resolve(t.Context(), seen, resolution)

			var failed *store.EngineError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, store.Rejected, failed.Failure)
			require.Equal(t, store.Unknown, s.record().State)
			require.Equal(t, rightToken, s.record().Token)
			require.Zero(t, s.decisions())
		})
	}
}

// natural is the draft of another key for a business identity.
func natural(key string, token store.Token) store.Draft {
	d := draft(token)
	d.Key, d.NaturalKey = key, "R-1"
	return d
}

// insertNatural is the rival's claim for the same.
const insertNatural = `INSERT INTO idempotency_records (tenant, actor, operation, key, state, claim_token,
		fingerprint_algorithm, fingerprint_version, fingerprint, claimed_at, lease_until, natural_key)
	VALUES ('acme', 'alice', 'create-order', 'K1', 'executing', '09000000-0000-0000-0000-000000000000',
		1, 'orders/v1', sha256('order'), now(), now() + interval '1 hour', 'R-1')`

func TestClaimWaitsForABusinessIdentityThatIsBeingClaimed(t *testing.T) {
	for end, want := range map[string]error{
		commit:   &store.NaturalKeyTakenError{Holder: identity},
		rollback: nil,
	} {
		t.Run(end, func(t *testing.T) {
			onEveryIsolation(t, func(t *testing.T, s *scene) {
				var claim <-chan error
				s.play(
					step{"another claims it", s.rivalRuns(begin, insertNatural)},
					step{"a second key comes with it", func() {
						claim = begins(func() error {
							won, _, err := s.engine.Claim(s.Context(), natural("K2", otherToken))
							if err == nil && !won {
								err = errors.New("neither won nor told why not")
							}
							return err
						})
					}},
					step{"it waits", s.waits},
					step{"the first one ends with " + end, s.rivalRuns(end)},
					step{"the second one has won or is told", func() { require.Equal(s, want, <-claim) }},
					step{"one record is there", func() { require.Equal(s, 1, s.records()) }},
				)
			})
		})
	}
}

func TestClashOfBusinessIdentitiesLeavesTheSessionAsItWas(t *testing.T) {
	s := newSingleScene(t)
	before := s.session()
	s.rivalRuns(insertNatural)()

	_, _, err := s.engine.Claim(t.Context(), natural("K2", otherToken))

	var taken *store.NaturalKeyTakenError
	require.ErrorAs(t, err, &taken)
	require.Equal(t, before, s.session())
	s.rivalRuns(release)()
	s.takesEveryWayOut()
	require.Equal(t, before, s.session())
}

// A client that comes back every second is a verification every second: the count
// must not come to an end within anybody's patience.
func TestVerificationsAreCountedForAsLongAsItTakes(t *testing.T) {
	s := newScene(t)
	seen := s.unknown()
	s.rivalRuns(`UPDATE idempotency_records SET verifications = 100000000`)()

	require.NoError(t, s.store.TakeForProbe(t.Context(), seen, over))
	taken, err := s.store.TakeUnknown(t.Context(), []string{identity.Operation}, time.Minute, 1)

	require.NoError(t, err)
	require.Equal(t, 100000002, taken[0].Verifications)
}
