package caddymodule

import (
	"context"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// DefaultSweepEvery is the pause between two sweeps.
const DefaultSweepEvery = 5 * time.Second

const (
	sweepBatch = 500

	// countEvery is how often the records are counted for the gauges.
	countEvery = 15 * time.Second
)

// sweepForever does what time does to records: leases that are over become
// unknown, replay windows that are over become expired, and tombstones go when
// their route has kept them for long enough. What quotas no longer need goes as well. Any number of instances sweep.
func (b *backend) sweepForever() {
	s := b.store.Load()
	var counted time.Time
	for {
		b.drain(zap.WarnLevel, "leases are over, their outcomes are unknown", s.Abandon)
		b.drain(zap.DebugLevel, "replay windows are over", s.Expire)
		b.drain(zap.InfoLevel, "tombstones are purged", s.Purge)
		b.drain(zap.DebugLevel, "quotas are purged", s.PurgeQuotas)
		if time.Since(counted) >= countEvery {
			b.count(s)
			counted = time.Now()
		}
		if !b.pauseBetweenSweeps() {
			return
		}
	}
}

// drain runs one kind of sweep until a batch comes back that is not full.
func (b *backend) drain(level zapcore.Level, event string, sweep func(context.Context, int) (int, error)) {
	for b.ctx.Err() == nil {
		moved, err := sweep(b.ctx, sweepBatch)
		if err != nil {
			if b.ctx.Err() == nil {
				backendLog().Error("sweeping", zap.Error(err))
			}
			return
		}
		if moved > 0 {
			backendLog().Log(level, event, zap.Int("records", moved))
		}
		if moved < sweepBatch {
			return
		}
	}
}

func (b *backend) count(s *store.Store) {
	stats, err := s.Stats(b.ctx)
	if err != nil {
		if b.ctx.Err() == nil {
			backendLog().Error("counting records", zap.Error(err))
		}
		return
	}
	for state, n := range stats.Records {
		metrics.records.WithLabelValues(string(state)).Set(float64(n))
	}
	metrics.oldestUnknown.Set(stats.OldestUnknown.Seconds())
}
