package main

import (
	"fmt"
	"time"
)

// comparison of two sides, one value for each round.
type comparison struct {
	Base, Side  spread // requests a second
	Ratio       spread // of requests a second
	BaseP99     spread // milliseconds
	SideP99     spread
	P99Ratio    spread
	MedianAdded spread // milliseconds: median latency of the side less that of the base
}

// side is an address and what is sent there.
type side struct {
	addr string
	load load
}

// compare lets the two sides take turns. The one that begins changes from round to
// round, and a turn before the first one, which does not count, warms both up.
func (b *bench) compare(base, other side, rounds int) (comparison, error) {
	var values [7][]float64
	for round := -1; round < rounds; round++ {
		results := [2]result{}
		d := b.slice
		if round < 0 {
			d = b.slice / 3
		}
		for turn := range 2 {
			which := (turn + round + 2) % 2
			s := [2]side{base, other}[which]
			var err error
			if results[which], err = s.load.run(b.ctx, s.addr, d); err != nil {
				return comparison{}, err
			}
			if results[which].requests() == 0 {
				return comparison{}, fmt.Errorf("%s answered nothing within %s", s.addr, d)
			}
		}
		if round < 0 {
			continue
		}
		x, y := results[0], results[1]
		for i, value := range []float64{
			x.rate(), y.rate(), y.rate() / x.rate(),
			x.ms(0.99), y.ms(0.99), y.ms(0.99) / x.ms(0.99), y.ms(0.5) - x.ms(0.5),
		} {
			values[i] = append(values[i], value)
		}
	}
	return comparison{
		Base: spreadOf(values[0]), Side: spreadOf(values[1]), Ratio: spreadOf(values[2]),
		BaseP99: spreadOf(values[3]), SideP99: spreadOf(values[4]), P99Ratio: spreadOf(values[5]),
		MedianAdded: spreadOf(values[6]),
	}, nil
}

// ms is a percentile in milliseconds.
func (r result) ms(q float64) float64 {
	return float64(percentile(r.latencies, q)) / float64(time.Millisecond)
}

// against compares a gateway with the bare proxy under one load.
func (b *bench) against(bare, gateway *caddy, l load, rounds int) (comparison, error) {
	return b.compare(side{bare.addr, l}, side{gateway.addr, l}, rounds)
}

// pair starts both, on an empty place, and lets the gateway write for a while: the
// first pages of a new database are the slowest, where a disk gives out its blocks
// when they are written for the first time.
func (b *bench) pair(kind, options string) (p *place, bare, gateway *caddy, stop func(), err error) {
	if p, err = b.newPlace(kind); err != nil {
		return nil, nil, nil, nil, err
	}
	if bare, err = b.bare(); err != nil {
		return nil, nil, nil, nil, err
	}
	if gateway, err = b.gateway(p, options); err != nil {
		bare.stop()
		return nil, nil, nil, nil, err
	}
	if _, err = firstWrite(64, 0, smallBody).run(b.ctx, gateway.addr, 3*b.slice); err != nil {
		bare.stop()
		gateway.stop()
		return nil, nil, nil, nil, err
	}
	return p, bare, gateway, func() { bare.stop(); gateway.stop() }, nil
}
