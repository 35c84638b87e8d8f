package caddymodule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// Caddy starts its apps in no order: a site may serve before the store is there.
func TestRequestThatComesBeforeTheStoreWaitsForIt(t *testing.T) {
	u := &usage{begun: make(chan struct{})}
	took := make(chan error)
	go func() {
		_, _, err := u.take()
		took <- err
	}()

	u.begin(new(backend), func() {})

	require.NoError(t, <-took)
}

func TestStoreThatIsNotOpenYetIsNotRead(t *testing.T) {
	_, err := new(backend).read(t.Context(), waitID)
	require.ErrorIs(t, err, errNotOpen)
	_, _, err = new(backend).claim(t.Context(), waitID, store.Fingerprint{}, "", time.Second, nil)
	require.ErrorIs(t, err, errNotOpen)
}

func TestStoreIsGivenBackWhenTheLastRequestOfAConfigurationIsDone(t *testing.T) {
	u := &usage{begun: make(chan struct{})}
	released := 0
	u.begin(new(backend), func() { released++ })
	_, first, err := u.take()
	require.NoError(t, err)
	_, second, err := u.take()
	require.NoError(t, err)

	first()
	u.end()
	require.Zero(t, released, "a request is in flight")
	second()
	require.Equal(t, 1, released)

	_, _, err = u.take()
	require.ErrorIs(t, err, errNotOpen, "a request that comes too late")
}
