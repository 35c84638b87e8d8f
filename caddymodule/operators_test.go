package caddymodule_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOperatorResolvesWhatTheServiceDidCommit(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		g.post("K1", order(100), fault("vanish")) // committed, and not answered
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())
		made := g.upstream.Orders()[0].ID

		waiting := g.list("state=unknown").ok()
		require.Equal(t, []string{"K1"}, waiting.keys())
		done := g.resolve("K1", because("it is in the books", fields{
			"as": "completed", "status": 201, "location": "/orders/" + made, "body": `{"id":"` + made + `"}`,
		})).ok()
		require.Equal(t, "completed", done.Done)
		require.Equal(t, "completed", done.Record.State)

		again := g.post("K1", order(100))
		require.Equal(t, 201, again.status)
		require.True(t, again.isReplay())
		require.Equal(t, "/orders/"+made, again.header.Get("Location"))
		require.Equal(t, "application/json", again.header.Get("Content-Type"))
		require.Equal(t, made, again.id())
		g.settled(1)
		require.Equal(t, []decided{{"olga", "unknown", "completed", 201, "it is in the books"}}, g.show("K1", nil).ok().audit())
		require.Empty(t, g.list("").ok().keys())
		require.Equal(t, problem(422, "key-reused"), g.post("K1", order(101)).problem())
	})
}

func TestOperatorReleasesWhatTheServiceDidNotExecute(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		g.post("K1", order(100), fault("reset")) // before the commit
		require.Equal(t, problem(409, "outcome-unknown"), g.post("K1", order(100)).problem())

		require.Equal(t, "released", g.release("K1", because("no such order", nil)).ok().Done)

		first := g.post("K1", order(100))
		first.first(201)
		g.post("K1", order(100)).replays(first)
		require.Equal(t, 1, g.upstream.made("K1"))
		require.Equal(t, 1, g.upstream.Stats().Orders)
		require.Equal(t, []decided{{"olga", "unknown", "released", 0, "no such order"}}, g.show("K1", nil).ok().audit())
	})
}

func TestResolvedWithoutResponseSaysWhatIsKnown(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		g.post("K1", order(100), fault("vanish"))

		g.resolve("K1", because("seen", fields{"as": "completed", "status": 201, "resource": "order 1", "without_response": true})).ok()

		again := g.post("K1", order(100))
		require.Equal(t, problem(409, "response-not-retained"), again.problem())
		require.Equal(t, 201, again.details().OriginalStatus)
		require.Equal(t, "order 1", again.details().Resource)
		require.Equal(t, 1, g.upstream.executions("K1"))
	})
}

func TestResolvedRecordIsReplayedAndKeptForAsLongAsTheOperatorSays(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		s.hasUnknown(t, "K1", 60)
		s.hasUnknown(t, "K2", 60)
		answer := fields{"as": "completed", "status": 204, "replay_for": "1ms"}

		g.resolve("K1", because("seen", answer)).ok()
		answer["keep_for"] = "1ms"
		g.resolve("K2", because("seen", answer)).ok()

		s.awaitState(t, "K1", "expired")
		s.awaitState(t, "K2", "")
	})
}

func TestStoredResponseIsShownOnlyWhenAsked(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		first := g.post("K1", order(100))

		shown := g.show("K1", nil).ok()
		require.True(t, shown.ResponseKept)
		require.Nil(t, shown.Response)
		require.NotContains(t, string(shown.raw), "bolt")

		shown = g.show("K1", fields{"response": true}).ok()
		require.Equal(t, string(first.body), shown.Response.Body)
		require.Equal(t, first.header["Location"], shown.Response.Header["Location"])
	})
}

func TestFirstOperatorWinsAndTheSecondIsTold(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		s.hasUnknown(t, "K1", 60)
		s.hasUnknown(t, "K2", 60)
		answer := fields{"as": "completed", "status": 201, "location": "/orders/1"}

		g.resolve("K1", because("first", answer)).ok()
		for _, second := range []ruling{g.resolve("K1", because("second", answer)), g.release("K1", because("second", nil))} {
			require.Equal(t, "409 not-unknown", second.told())
			require.Equal(t, "completed", second.Record.State)
			require.Equal(t, "/orders/1", second.Record.Resource)
			require.Contains(t, second.Error, "by olga")
			require.Contains(t, second.Error, "first")
			require.Len(t, second.audit(), 1)
		}

		g.release("K2", because("first", nil)).ok()
		for _, second := range []ruling{g.resolve("K2", because("second", answer)), g.release("K2", because("second", nil)), g.show("K2", nil)} {
			require.Equal(t, "404 no-such-record", second.told())
			require.Equal(t, []decided{{"olga", "unknown", "released", 0, "first"}}, second.audit())
		}
	})
}

func TestLateAnswerAfterTheOperatorChangesNothing(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		first := g.later("K1", order(100), fault("hold-after"))
		g.upstream.awaitHeld(1)
		s.leasesAreOver(t)
		s.awaitState(t, "K1", "unknown")
		location := "/orders/" + g.upstream.Orders()[0].ID

		g.resolve("K1", because("it is there", fields{"as": "completed", "status": 201, "location": location})).ok()
		g.upstream.Release(0)

		first().first(201) // the upstream's own answer
		g.process().awaitLog(t, "record was settled by somebody else meanwhile")
		again := g.post("K1", order(100))
		require.Equal(t, 201, again.status)
		require.Equal(t, location, again.header.Get("Location"))
		require.Empty(t, again.body, "it is the operator's answer that counts")
		g.settled(1)
	})
}

func TestOperatorAfterTheLateAnswerIsTold(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		first := g.later("K1", order(100), fault("hold"))
		g.upstream.awaitHeld(1)
		require.Equal(t, "409 not-unknown", g.release("K1", because("too early", nil)).told(), "it is executing")
		s.leasesAreOver(t)
		s.awaitState(t, "K1", "unknown")
		g.upstream.Release(0)
		first().first(201)

		late := g.release("K1", because("not there, I thought", nil))

		require.Equal(t, "409 not-unknown", late.told())
		require.Equal(t, "completed", late.Record.State)
		require.Empty(t, late.Audit)
		g.post("K1", order(100)).replays(first())
		g.settled(1)
	})
}

// A decision is about what the operator has looked into. The key may have been
// released and used again meanwhile, and that request may have been executed.
func TestDecisionAboutAnEarlierAttemptIsRefused(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		g := newGateway(t, s)
		g.post("K1", order(100), fault("reset"))
		looked := g.show("K1", nil).ok().Record.Attempt
		g.release("K1", because("not there", fields{"attempt": looked})).ok()
		g.post("K1", order(100), fault("vanish"))

		late := g.release("K1", because("not there", fields{"attempt": looked}))

		require.Equal(t, "409 other-attempt", late.told())
		require.NotEqual(t, looked, late.Record.Attempt)
		require.Equal(t, "unknown", s.state(t, "K1"))
		require.Equal(t, 1, g.upstream.made("K1"))
		g.release("K1", because("it is gone", fields{"attempt": late.Record.Attempt})).ok()
	})
}

func TestOperatorFindsADigestedKeyByTheClients(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *testStore) {
		s.directive += "\nsecret 0123456789abcdef"
		g := newGateway(t, s, "store_key digest")
		g.post("K1", order(100), fault("reset"))

		listed := g.list("").ok()
		require.Len(t, listed.Records, 1)
		require.NotContains(t, string(listed.raw), "K1")
		require.Equal(t, listed.Records[0].Key, g.show("K1", nil).ok().Record.Key)
		require.Equal(t, listed.Records[0].Key, g.show(listed.Records[0].Key, nil).ok().Record.Key)

		done := g.release("K1", because("not there", nil)).ok()
		require.Len(t, done.Audit, 1)
		require.Len(t, g.show("K1", nil).Audit, 1)
		g.post("K1", order(100)).first(201)
	})
}
