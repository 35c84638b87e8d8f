package main

import (
	"fmt"
	"time"
)

// memory compares how much is resident at the most, each time in processes that
// have done nothing else.
func (b *bench) memory() error {
	inFlight, delay, rounds := 1000, 2*time.Second, 3
	if b.quick {
		inFlight, delay, rounds = 200, 500*time.Millisecond, 2
	}
	l := firstWrite(inFlight, delay, 10_000)
	s := section{Title: "Memory", Header: []string{"store", "bare, MiB", "gateway, MiB", "difference, MiB"},
		Prose: fmt.Sprintf("The most that Caddy's process had resident, with %d requests in flight for three times %s, bodies of 10 KB there and back.", inFlight, delay)}
	peak := func(start func() (*caddy, error)) (float64, error) {
		c, err := start()
		if err != nil {
			return 0, err
		}
		defer c.stop()
		if _, err := l.run(b.ctx, c.addr, 5*delay/2); err != nil {
			return 0, err
		}
		return c.peakMemory()
	}
	for _, kind := range kinds {
		var bares, gateways, more []float64
		for range rounds {
			p, err := b.newPlace(kind)
			if err != nil {
				return err
			}
			bare, err := peak(b.bare)
			if err != nil {
				return err
			}
			gateway, err := peak(func() (*caddy, error) { return b.gateway(p, "") })
			if err != nil {
				return err
			}
			bares, gateways, more = append(bares, bare), append(gateways, gateway), append(more, gateway-bare)
		}
		s.Rows = append(s.Rows, []string{kind, spreadOf(bares).format("%.0f"), spreadOf(gateways).format("%.0f"), spreadOf(more).format("%.0f")})
		b.report.judge(goal{Work: "memory above the bare proxy, 1,000 in flight, 10 KB", Store: kind, Limit: 64, Got: spreadOf(more), Format: "%.0f", Unit: " MiB"})
	}
	b.report.add(s)
	return nil
}
