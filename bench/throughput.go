package main

import (
	"fmt"
	"net/http"
	"time"
)

var clientCounts = []int{1, 8, 64, 256}

var comparisonHeader = []string{"store", "work", "clients", "bare, req/s", "gateway, req/s", "ratio", "bare p99, ms", "gateway p99, ms", "p99 ratio"}

func (c comparison) row(kind, work string, clients int) []string {
	return []string{
		kind, work, fmt.Sprint(clients),
		fmt.Sprintf("%.0f", c.Base.Median), fmt.Sprintf("%.0f", c.Side.Median), c.Ratio.format("%.2f"),
		fmt.Sprintf("%.1f", c.BaseP99.Median), fmt.Sprintf("%.1f", c.SideP99.Median), c.P99Ratio.format("%.2f"),
	}
}

// work is a kind of load by its number of clients, once there are keys.
type work struct {
	name   string
	status int // of the gateway's answers; 0 for 201, as the bare proxy's
	load   func(clients int, there []key) load
}

// matrix compares each kind of work with each number of clients on each store.
func (b *bench) matrix(title, prose, plotName string, works []work, judge func(kind, work string, clients int, c comparison)) error {
	s := section{Title: title, Prose: prose, Header: comparisonHeader}
	bars := plot{Name: plotName, Title: title + ": ratio to the bare proxy", Categories: numbers(clientCounts), XTitle: "clients", Line: 1}
	for _, kind := range kinds {
		_, bare, gateway, stop, err := b.pair(kind, "")
		if err != nil {
			return err
		}
		defer stop()
		there, err := b.complete(gateway, smallBody)
		if err != nil {
			return err
		}
		for _, w := range works {
			series := series{Name: kind}
			if len(works) > 1 {
				series.Name += ", " + w.name
			}
			for _, clients := range clientCounts {
				rounds := b.few()
				if judge != nil && (clients == 8 || clients == 64) {
					rounds = b.rounds
				}
				l := w.load(clients, there)
				protected := l
				if w.status != 0 {
					protected.accept = w.status
				}
				c, err := b.compare(side{bare.addr, l}, side{gateway.addr, protected}, rounds)
				if err != nil {
					return fmt.Errorf("%s, %s, %d clients: %w", kind, w.name, clients, err)
				}
				b.say("%s, %s, %d clients: %s", kind, w.name, clients, c.Ratio.format("%.2f"))
				s.Rows = append(s.Rows, c.row(kind, w.name, clients))
				series.Values = append(series.Values, c.Ratio)
				if judge != nil {
					judge(kind, w.name, clients, c)
				}
			}
			bars.Series = append(bars.Series, series)
		}
		stop()
	}
	s.Plots = []plot{bars}
	b.report.add(s)
	return nil
}

func (b *bench) firstWrites() error {
	works := []work{{name: "first writes", load: func(clients int, _ []key) load { return firstWrite(clients, 0, smallBody) }}}
	return b.matrix("First writes", "Each request has a key of its own. Upstream without a delay, bodies of 0.2 KB.", "first", works,
		func(kind, _ string, clients int, c comparison) {
			limit := map[int]float64{8: 0.5, 64: 0.8}[clients]
			if limit == 0 {
				return
			}
			b.report.judge(goal{Work: fmt.Sprintf("first writes, %d clients", clients), Store: kind, Limit: limit, AtLeast: true, Got: c.Ratio, Format: "%.2f", Unit: " of bare"})
			if clients == 64 && kind == onPostgres {
				b.report.judge(goal{Work: "first writes, 64 clients, p99", Store: kind, Limit: 1.25, Got: c.P99Ratio, Format: "%.2f", Unit: " of bare"})
			}
		})
}

func (b *bench) replays() error {
	works := []work{{name: "replays", load: func(clients int, there []key) load { return replay(clients, smallBody, there) }}}
	return b.matrix("Replays", "Each request has one of 2,000 keys that are completed, far from their expiry. The bare proxy forwards it.", "replays", works,
		func(kind, _ string, clients int, c comparison) {
			if clients != 64 {
				return
			}
			limit := map[string]float64{onPostgres: 1.3, onSQLite: 1.5}[kind]
			b.report.judge(goal{Work: "replays, 64 clients", Store: kind, Limit: limit, AtLeast: true, Got: c.Ratio, Format: "%.2f", Unit: " of bare"})
		})
}

func (b *bench) others() error {
	return b.matrix("Mixture, one hot key, mismatches",
		"The mixture is 80 % first writes and 20 % replays. With one hot key, all clients send the same key, and a new one after each 1,000 "+
			"requests. Mismatches are completed keys with another payload, which the gateway refuses with 422.", "others",
		[]work{
			{name: "mixture", load: func(clients int, there []key) load { return mixture(clients, there) }},
			{name: "hot key", load: func(clients int, _ []key) load { return hotKey(clients) }},
			{name: "mismatches", status: http.StatusUnprocessableEntity, load: func(clients int, there []key) load { return mismatch(clients, there) }},
		}, nil)
}

// generator shows that what is measured is not the generator.
func (b *bench) generator() error {
	s := section{Title: "The load generator", Header: []string{"clients", "upstream alone, req/s", "bare proxy, req/s", "ratio"},
		Prose: "The generator against the upstream without a Caddy between them, which bounds all other figures. It, the upstream, Caddy and the " +
			"database share the machine's cores, as the bare proxy's side does."}
	bare, err := b.bare()
	if err != nil {
		return err
	}
	defer bare.stop()
	for _, clients := range clientCounts {
		l := firstWrite(clients, 0, smallBody)
		c, err := b.compare(side{bare.addr, l}, side{b.upstream, l}, b.few())
		if err != nil {
			return err
		}
		s.Rows = append(s.Rows, []string{fmt.Sprint(clients), fmt.Sprintf("%.0f", c.Side.Median), fmt.Sprintf("%.0f", c.Base.Median), c.Ratio.format("%.1f")})
	}
	b.report.add(s)
	return nil
}

// bodies compares sizes of request and response.
func (b *bench) bodies() error {
	const clients = 8
	s := section{Title: "Bodies", Header: append([]string{"body, KB"}, comparisonHeader...),
		Prose: "Request and response are JSON of the size that is named. The gateway reads both to their ends, makes a fingerprint of the one and stores the other."}
	for _, kind := range kinds {
		_, bare, gateway, stop, err := b.pair(kind, "")
		if err != nil {
			return err
		}
		defer stop()
		for _, size := range []int{smallBody, 10_000, 500_000} {
			there, err := b.completeFew(gateway, size)
			if err != nil {
				return err
			}
			for _, w := range []struct {
				name string
				load load
			}{{"first writes", firstWrite(clients, 0, size)}, {"replays", replay(clients, size, there)}} {
				c, err := b.against(bare, gateway, w.load, b.few())
				if err != nil {
					return fmt.Errorf("%s, %s of %d bytes: %w", kind, w.name, size, err)
				}
				s.Rows = append(s.Rows, append([]string{fmt.Sprint(float64(size) / 1000)}, c.row(kind, w.name, clients)...))
			}
		}
		stop()
	}
	b.report.add(s)
	return nil
}

// slow is where an upstream takes its time, and claims and completions lie far
// apart.
func (b *bench) slow() error {
	const clients = 64
	const delay = 300 * time.Millisecond
	s := section{Title: "First writes, upstream of 300 ms", Header: comparisonHeader,
		Prose: "The ratio says what a client sees of the gateway behind a slow service. An update of PostgreSQL that is HOT touches no index and leaves nothing " +
			"that only VACUUM can remove."}
	for _, kind := range kinds {
		p, bare, gateway, stop, err := b.pair(kind, "")
		if err != nil {
			return err
		}
		defer stop()
		var before updates
		if kind == onPostgres {
			if before, err = b.updatesOf(p); err != nil {
				return err
			}
		}
		c, err := b.against(bare, gateway, firstWrite(clients, delay, smallBody), b.few())
		if err != nil {
			return err
		}
		s.Rows = append(s.Rows, c.row(kind, "first writes", clients))
		stop() // sessions that end report what they did
		if kind == onPostgres {
			after, err := b.updatesOf(p)
			if err != nil {
				return err
			}
			b.judgeHOT(before, after)
		}
	}
	b.report.add(s)
	return nil
}
