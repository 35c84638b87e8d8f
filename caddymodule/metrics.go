package caddymodule

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// metrics are one set for the process: Caddy's registry is a new one with every
// reload, and counters that began anew with each would lie. No label comes from a
// client.
var metrics = struct {
	requests      *prometheus.CounterVec
	storeCalls    *prometheus.HistogramVec
	records       *prometheus.GaugeVec
	oldestUnknown prometheus.Gauge
	unsettled     prometheus.Gauge
	givenUp       prometheus.Counter
}{
	requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "idempotency", Name: "requests_total",
		Help: "Protected requests by operation, as configured, and by outcome.",
	}, []string{"operation", "outcome"}),
	storeCalls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "caddy", Subsystem: "idempotency", Name: "store_call_duration_seconds",
		Help:    "Duration of store calls by kind and result.",
		Buckets: []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	}, []string{"kind", "result"}),
	records: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "idempotency", Name: "records",
		Help: "Records by state; completed and expired are estimates where the table is large.",
	}, []string{"state"}),
	oldestUnknown: prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "idempotency", Name: "oldest_unknown_seconds",
		Help: "Age of the oldest unknown outcome; 0 if there is none.",
	}),
	unsettled: prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "idempotency", Name: "unsettled",
		Help: "Outcomes of this process that the store has not taken yet.",
	}),
	givenUp: prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "idempotency", Name: "given_up_total",
		Help: "Outcomes of this process that the store will not get: their records are of unknown outcome.",
	}),
}

func registerMetrics(registry *prometheus.Registry) error {
	for _, collector := range []prometheus.Collector{
		metrics.requests, metrics.storeCalls, metrics.records, metrics.oldestUnknown, metrics.unsettled, metrics.givenUp,
	} {
		var already prometheus.AlreadyRegisteredError
		if err := registry.Register(collector); err != nil && !errors.As(err, &already) {
			return err
		}
	}
	return nil
}

// measured is an engine whose calls are timed.
type measured struct{ store.Engine }

func observeCall(kind string, begun time.Time, err error) {
	result := "ok"
	var engine *store.EngineError
	var taken *store.NaturalKeyTakenError
	var exceeded *store.QuotaExceededError
	switch {
	case err == nil, errors.Is(err, store.ErrNoRecord), errors.Is(err, store.ErrNotHeld), errors.As(err, &taken), errors.As(err, &exceeded):
	case errors.As(err, &engine):
		result = engine.Failure.String()
	default:
		result = "error"
	}
	metrics.storeCalls.WithLabelValues(kind, result).Observe(time.Since(begun).Seconds())
}

func (m measured) Claim(ctx context.Context, draft store.Draft) (won bool, held *store.Record, err error) {
	defer func(begun time.Time) { observeCall("claim", begun, err) }(time.Now())
	return m.Engine.Claim(ctx, draft)
}

func (m measured) Read(ctx context.Context, id store.Identity) (record *store.Record, err error) {
	defer func(begun time.Time) { observeCall("read", begun, err) }(time.Now())
	return m.Engine.Read(ctx, id)
}

func (m measured) Complete(ctx context.Context, id store.Identity, token store.Token, c store.Completion) (err error) {
	defer func(begun time.Time) { observeCall("complete", begun, err) }(time.Now())
	return m.Engine.Complete(ctx, id, token, c)
}

func (m measured) MarkUnknown(ctx context.Context, id store.Identity, token store.Token, d store.Doubt) (err error) {
	defer func(begun time.Time) { observeCall("mark_unknown", begun, err) }(time.Now())
	return m.Engine.MarkUnknown(ctx, id, token, d)
}

func (m measured) Release(ctx context.Context, id store.Identity, token store.Token) (err error) {
	defer func(begun time.Time) { observeCall("release", begun, err) }(time.Now())
	return m.Engine.Release(ctx, id, token)
}

func (m measured) Abandon(ctx context.Context, limit int) (n int, err error) {
	defer func(begun time.Time) { observeCall("abandon", begun, err) }(time.Now())
	return m.Engine.Abandon(ctx, limit)
}

func (m measured) Expire(ctx context.Context, limit int) (n int, err error) {
	defer func(begun time.Time) { observeCall("expire", begun, err) }(time.Now())
	return m.Engine.Expire(ctx, limit)
}

func (m measured) Purge(ctx context.Context, limit int) (n int, err error) {
	defer func(begun time.Time) { observeCall("purge", begun, err) }(time.Now())
	return m.Engine.Purge(ctx, limit)
}

func (m measured) PurgeQuotas(ctx context.Context, limit int) (n int, err error) {
	defer func(begun time.Time) { observeCall("purge_quotas", begun, err) }(time.Now())
	return m.Engine.PurgeQuotas(ctx, limit)
}

func (m measured) Stats(ctx context.Context) (stats store.Stats, err error) {
	defer func(begun time.Time) { observeCall("stats", begun, err) }(time.Now())
	return m.Engine.Stats(ctx)
}

func (m measured) Resolve(ctx context.Context, id store.Identity, token, newToken store.Token, r store.Resolution) (err error) {
	defer func(begun time.Time) { observeCall("resolve", begun, err) }(time.Now())
	return m.Engine.Resolve(ctx, id, token, newToken, r)
}

func (m measured) TakeUnknown(ctx context.Context, operations []string, hold time.Duration, limit int) (records []*store.Record, err error) {
	defer func(begun time.Time) { observeCall("take_unknown", begun, err) }(time.Now())
	return m.Engine.TakeUnknown(ctx, operations, hold, limit)
}

func (m measured) TakeForProbe(ctx context.Context, id store.Identity, token store.Token, hold time.Duration) (err error) {
	defer func(begun time.Time) { observeCall("take_for_probe", begun, err) }(time.Now())
	return m.Engine.TakeForProbe(ctx, id, token, hold)
}

func (m measured) PutOff(ctx context.Context, id store.Identity, token store.Token, delay time.Duration) (err error) {
	defer func(begun time.Time) { observeCall("put_off", begun, err) }(time.Now())
	return m.Engine.PutOff(ctx, id, token, delay)
}

func (m measured) Pin(ctx context.Context, name string, value []byte) (held []byte, err error) {
	defer func(begun time.Time) { observeCall("pin", begun, err) }(time.Now())
	return m.Engine.Pin(ctx, name, value)
}

func (m measured) List(ctx context.Context, filter store.Filter) (records []*store.Record, err error) {
	defer func(begun time.Time) { observeCall("list", begun, err) }(time.Now())
	return m.Engine.List(ctx, filter)
}

func (m measured) Audit(ctx context.Context, id store.Identity) (entries []store.AuditEntry, err error) {
	defer func(begun time.Time) { observeCall("audit", begun, err) }(time.Now())
	return m.Engine.Audit(ctx, id)
}
