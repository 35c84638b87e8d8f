package caddymodule

import (
	"context"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

func TestClaimsThatWereNeverProvedLeaveRoomForOutcomes(t *testing.T) {
	s := newSettler()
	back := false
	write := func(context.Context) error {
		if back {
			return nil
		}
		return away
	}
	before := unsettled(t)

	for range settlerJobs + 1 { // requests, while the store is away
		s.add(job{log: nopLog, write: write, claim: true})
	}
	require.Equal(t, settlerClaims, s.waiting())
	require.Equal(t, before, unsettled(t), "they are no outcomes")
	s.add(job{log: nopLog, write: write})
	require.Equal(t, settlerClaims+1, s.waiting())

	require.False(t, s.round(t.Context(), time.Second))
	require.Equal(t, before+1, unsettled(t))
	back = true
	require.True(t, s.round(t.Context(), time.Second))
	require.Equal(t, before, unsettled(t))
	s.add(job{log: nopLog, write: write, claim: true})
	require.Equal(t, 1, s.waiting(), "there is room again")
}

// givenUp is what the counter shows.
func givenUp(t *testing.T) float64 {
	t.Helper()
	var metric dto.Metric
	require.NoError(t, metrics.givenUp.Write(&metric))
	return metric.GetCounter().GetValue()
}

// unsettled is what the gauge shows.
func unsettled(t *testing.T) float64 {
	t.Helper()
	var metric dto.Metric
	require.NoError(t, metrics.unsettled.Write(&metric))
	return metric.GetGauge().GetValue()
}
