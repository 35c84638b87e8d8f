package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// viewsOf measures what an operator asks first, through the store as the commands
// do, on records that no gateway uses at this moment.
func (b *bench) viewsOf(p *place, records int) (rows [][]string, err error) {
	engine, err := p.open(b.ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = engine.Close() }()
	const page, times = 50, 50
	list := func(f store.Filter) func() error {
		f.Limit = page
		return func() error { _, err := engine.List(b.ctx, f); return err }
	}
	for _, view := range []struct {
		command string
		goal    bool
		ask     func() error
	}{
		{"ls --state unknown", true, list(store.Filter{State: store.Unknown})},
		{"ls --state unknown --older 10m", true, list(store.Filter{State: store.Unknown, OlderThan: 10 * time.Minute})},
		{"stats", true, func() error { _, err := engine.Stats(b.ctx); return err }},
		{"ls --state executing", false, list(store.Filter{State: store.Executing})},
		{"ls --state completed", false, list(store.Filter{State: store.Completed})},
	} {
		var took []float64
		for range times {
			since := time.Now()
			if err := view.ask(); err != nil {
				return nil, fmt.Errorf("%s: %w", view.command, err)
			}
			took = append(took, float64(time.Since(since))/float64(time.Millisecond))
		}
		spread := spreadOf(took)
		rows = append(rows, []string{p.kind, fmt.Sprint(records), view.command, spread.format("%.2f"), fmt.Sprintf("%.1f", slices.Max(took))})
		if view.goal {
			b.report.judge(goal{Work: view.command + ", 10 million records, 100 of them unknown", Store: p.kind, Limit: 100, Got: spread, Format: "%.2f", Unit: " ms"})
		}
	}
	return rows, nil
}
