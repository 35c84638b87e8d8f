package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSpreadIsMedianAndQuartiles(t *testing.T) {
	require.Equal(t, spread{Median: 3, Low: 2, High: 4}, spreadOf([]float64{5, 1, 4, 2, 3}))
	require.Equal(t, spread{Median: 1.5, Low: 1.25, High: 1.75}, spreadOf([]float64{2, 1}))
	require.Equal(t, spread{Median: 7, Low: 7, High: 7}, spreadOf([]float64{7}))
}

func TestPercentileIsALatencyThatOccurred(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}

	require.Equal(t, time.Duration(50), percentile(hundred, 0.5))
	require.Equal(t, time.Duration(99), percentile(hundred, 0.99))
	require.Equal(t, time.Duration(100), percentile(hundred, 1))
	require.Equal(t, time.Duration(3), percentile([]time.Duration{1, 2, 3}, 0.99))
	require.Zero(t, percentile(nil, 0.5))
}

func TestGoalIsMissedOnlyBeyondTheSpread(t *testing.T) {
	for _, c := range []struct {
		name    string
		atLeast bool
		got     spread
		want    verdict
	}{
		{"at least, reached", true, spread{1, 0.5, 1.5}, met},
		{"at least, in the spread", true, spread{0.9, 0.8, 1}, within},
		{"at least, beyond", true, spread{0.9, 0.8, 0.99}, missed},
		{"at most, kept", false, spread{1, 0.5, 1.5}, met},
		{"at most, in the spread", false, spread{1.1, 1, 1.2}, within},
		{"at most, beyond", false, spread{1.1, 1.01, 1.2}, missed},
	} {
		require.Equal(t, c.want, goal{Limit: 1, AtLeast: c.atLeast, Got: c.got}.verdict(), c.name)
	}
}

func TestDepthFollowsFromKeysInAPage(t *testing.T) {
	require.Equal(t, 1, depth(100, 100))
	require.Equal(t, 2, depth(101, 100))
	require.Equal(t, 3, depth(1_000_000, 101))
	require.Equal(t, 5, depth(10_000_000_000, 100.1))
}
