package main

import (
	"fmt"
	"math"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// manyRecords lets a gateway on a large table take turns with one on a small one.
func (b *bench) manyRecords() error {
	const clients = 64
	s := section{Title: "Many records", Header: []string{"store", "work", "records there", "req/s with a thousand", "req/s with these", "ratio", "p99 ratio"},
		Prose: fmt.Sprintf("The gateway against itself: one with a thousand records, one with many, %d clients.", clients)}
	views := section{Title: "Operators", Header: []string{"store", "records there", "command", "ms", "most of 50"},
		Prose: "What on-call asks first, a first page of 50, a hundred records unknown. Time in the store."}
	var grown []growth
	for _, kind := range kinds {
		small, fewThere, err := b.filled(kind, 1000, func(*place) error { return nil })
		if err != nil {
			return err
		}
		defer small.caddy.stop()
		if kind == onPostgres {
			g, err := b.growthOf(small, 1000)
			if err != nil {
				return err
			}
			grown = append(grown, g)
		}
		for _, records := range []int{b.some(1_000_000), b.some(10_000_000)} {
			large, manyThere, err := b.filled(kind, records, func(p *place) error {
				if records != b.some(10_000_000) {
					return nil
				}
				rows, err := b.viewsOf(p, records)
				views.Rows = append(views.Rows, rows...)
				return err
			})
			if err != nil {
				return err
			}
			defer large.caddy.stop()
			for _, w := range []struct {
				name        string
				small, many load
			}{
				{"first writes", firstWrite(clients, 0, smallBody), firstWrite(clients, 0, smallBody)},
				{"replays", replay(clients, smallBody, fewThere), replay(clients, smallBody, manyThere)},
			} {
				rounds := b.rounds
				if records == b.some(1_000_000) {
					rounds = b.few()
				}
				c, err := b.compare(side{small.caddy.addr, w.small}, side{large.caddy.addr, w.many}, rounds)
				if err != nil {
					return err
				}
				s.Rows = append(s.Rows, []string{kind, w.name, fmt.Sprint(records), fmt.Sprintf("%.0f", c.Base.Median), fmt.Sprintf("%.0f", c.Side.Median),
					c.Ratio.format("%.2f"), c.P99Ratio.format("%.2f")})
				if records == b.some(10_000_000) {
					limit := map[string]float64{onPostgres: 0.95, onSQLite: 0.9}[kind]
					b.report.judge(goal{Work: w.name + ", 10 million records there", Store: kind, Limit: limit, AtLeast: true, Got: c.Ratio, Format: "%.2f", Unit: " of itself"})
				}
			}
			if kind == onPostgres {
				g, err := b.growthOf(large, records)
				if err != nil {
					return err
				}
				grown = append(grown, g)
			}
			large.caddy.stop()
			if err := large.place.remove(b); err != nil { // two large ones need not fit
				return err
			}
		}
		small.caddy.stop()
	}
	b.report.add(s)
	b.report.add(views)
	b.report.add(onPaper(grown))
	return nil
}

// served is a gateway on its place.
type served struct {
	place *place
	caddy *caddy
}

// filled starts a gateway on a place with so many records and some completed keys.
// Look is called before it starts.
func (b *bench) filled(kind string, records int, look func(*place) error) (served, []key, error) {
	p, err := b.newPlace(kind)
	if err != nil {
		return served{}, nil, err
	}
	if err := b.fill(p, fill{records: records}); err != nil {
		return served{}, nil, err
	}
	if err := look(p); err != nil {
		return served{}, nil, err
	}
	gateway, err := b.gateway(p, "")
	if err != nil {
		return served{}, nil, err
	}
	there, err := b.complete(gateway, smallBody)
	if err != nil {
		gateway.stop()
	}
	return served{p, gateway}, there, err
}

// growth is what a size of the table does to a first write in PostgreSQL.
type growth struct {
	records              int
	tablePages           float64
	indexPages, perPage  float64
	walCold, walWarm     float64 // bytes a request, after a checkpoint and later
	tableBytes, keyBytes float64 // a record
	freeze               time.Duration
}

func (b *bench) growthOf(s served, records int) (g growth, err error) {
	g.records = records
	begun := time.Now()
	if err := execute(b.ctx, s.place.dsn, "VACUUM (FREEZE, ANALYZE) idempotency_records"); err != nil {
		return g, err
	}
	g.freeze = time.Since(begun)
	if err := execute(b.ctx, s.place.dsn, "CHECKPOINT"); err != nil {
		return g, err
	}
	var there float64
	err = ask(b.ctx, s.place.dsn, `SELECT t.relpages, i.relpages, i.reltuples FROM pg_class t, pg_class i
		WHERE t.relname = 'idempotency_records' AND i.relname = 'idempotency_records_pkey'`, &g.tablePages, &g.indexPages, &there)
	if err != nil {
		return g, err
	}
	const page = 8192
	g.perPage, g.tableBytes, g.keyBytes = there/g.indexPages, g.tablePages*page/there, g.indexPages*page/there
	watcher, err := pgx.Connect(b.ctx, s.place.dsn)
	if err != nil {
		return g, err
	}
	defer func() { _ = watcher.Close(b.ctx) }()
	for _, into := range []*float64{&g.walCold, &g.walWarm} {
		before, err := readServer(b.ctx, watcher)
		if err != nil {
			return g, err
		}
		r, err := firstWrite(64, 0, smallBody).run(b.ctx, s.caddy.addr, b.slice)
		if err != nil {
			return g, err
		}
		after, err := readServer(b.ctx, watcher)
		if err != nil {
			return g, err
		}
		*into = float64(after.wal-before.wal) / float64(r.requests())
	}
	return g, nil
}

// onPaper goes on from the largest table that was measured.
func onPaper(grown []growth) section {
	s := section{Title: "Growth, on paper", Header: []string{"records", "", "table, GB", "index of keys, GB", "keys a page", "depth of the index", "freezing all of it, s", "WAL of a first write, bytes: after a checkpoint", "later"},
		Prose: "PostgreSQL. **The last two rows are extrapolated, not measured**: from the pages that the largest table has for each record, the depth that " +
			"follows from as many keys in each page, inner ones too, and the time that VACUUM took for each record of the largest table when it froze all of them at once. A claim goes down the index once and writes one page of it, and one of the table; no " +
			"statement of a request reads more with more records. What grows is the share of pages that are not in memory, and the share of first writes whose " +
			"page of the index is written for the first time after a checkpoint, which PostgreSQL logs as a whole (8 KiB, `full_page_writes`): `max_wal_size` and " +
			"`checkpoint_timeout` bound it."}
	row := func(g growth, how string) {
		wal := []string{fmt.Sprintf("%.0f", g.walCold), fmt.Sprintf("%.0f", g.walWarm)}
		if g.walCold == 0 {
			wal = []string{"", ""}
		}
		n := float64(g.records)
		s.Rows = append(s.Rows, append([]string{fmt.Sprintf("%.3g", n), how, fmt.Sprintf("%.3g", n*g.tableBytes/1e9), fmt.Sprintf("%.3g", n*g.keyBytes/1e9),
			fmt.Sprintf("%.0f", g.perPage), fmt.Sprint(depth(n, g.perPage)), fmt.Sprintf("%.3g", g.freeze.Seconds())}, wal...))
	}
	for _, g := range grown {
		row(g, "measured")
	}
	for _, records := range []int{100_000_000, 10_000_000_000} {
		g := grown[len(grown)-1]
		g.freeze *= time.Duration(records / g.records)
		g.records, g.walCold, g.walWarm = records, 0, 0
		row(g, "extrapolated")
	}
	return s
}

// depth is how many pages a search of a B-tree reads from root to leaf.
func depth(records, perPage float64) int {
	return max(1, int(math.Ceil(math.Log(records)/math.Log(perPage))))
}

// remove gives the disk space back.
func (p *place) remove(b *bench) error {
	if p.kind == onPostgres {
		return execute(b.ctx, p.dsn, "TRUNCATE idempotency_records, idempotency_responses, idempotency_due")
	}
	return os.Truncate(p.path, 0)
}
