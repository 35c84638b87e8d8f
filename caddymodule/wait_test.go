package caddymodule

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

var waitID = store.Identity{Scope: store.Scope{Tenant: "t", Actor: "a", Operation: "o"}, Key: "k"}

func TestWaitingRequestIsSignalledWhenTheFirstIsSettled(t *testing.T) {
	var w waits
	settled := w.executing(waitID)
	patience := (&Handler{Wait: hours}).newWait()
	result := make(chan waitResult)
	watched := w.watch(waitID)
	go func() { result <- patience.next(t.Context(), watched) }()

	settled()
	settled() // more than once is fine

	require.Equal(t, waitAgain, <-result)
	require.Nil(t, w.watch(waitID), "nothing is left behind")
}

func TestSettledRequestDoesNotEndTheWatchOfItsSuccessor(t *testing.T) {
	var w waits
	first := w.executing(waitID)
	second := w.executing(waitID) // after a release

	first()

	require.NotNil(t, w.watch(waitID))
	second()
	require.Nil(t, w.watch(waitID))
}

func TestRecordOfAnotherInstanceIsReadAgainAtOnceAndThenPolled(t *testing.T) {
	patience := (&Handler{Wait: hours}).newWait()

	require.Equal(t, waitAgain, patience.next(t.Context(), nil)) // at once
	require.Equal(t, pollFirst, patience.poll)
	require.Equal(t, waitAgain, patience.next(t.Context(), nil))
	require.Greater(t, patience.poll, pollFirst, "and more slowly each time")
}

func TestWaitingRequestGivesUp(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	var w waits
	defer w.executing(waitID)()

	require.Equal(t, waitClientGone, (&Handler{Wait: hours}).newWait().next(gone, w.watch(waitID)))
	require.Equal(t, waitOver, (&Handler{Wait: -1}).newWait().next(t.Context(), w.watch(waitID)), "wait off")
}

const hours = 1 << 50 // nanoseconds; two weeks
