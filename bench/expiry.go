package main

import (
	"database/sql"
	"fmt"
	"time"
)

// expiry measures first writes before a million replay windows end together, and
// while the sweeper moves their records on.
func (b *bench) expiry() error {
	const clients = 64
	f := fill{records: 1_000_000, expireIn: 75}
	if b.quick {
		f = fill{records: 20_000, expireIn: 6}
	}
	s := section{Title: "While records expire", Header: []string{"store", "p99 before, ms", "p99 meanwhile, ms", "ratio", "req/s before", "req/s meanwhile", "records expired a second"},
		Prose: fmt.Sprintf("First writes by %d clients. %d records are completed, and all of their replay windows end at one moment.", clients, f.records)}
	for _, kind := range kinds {
		p, err := b.newPlace(kind)
		if err != nil {
			return err
		}
		ends := time.Now().Add(time.Duration(f.expireIn) * time.Second)
		if err := b.fill(p, f); err != nil {
			return err
		}
		gateway, err := b.gateway(p, "")
		if err != nil {
			return err
		}
		defer gateway.stop()
		l := firstWrite(clients, 0, smallBody)
		var before, meanwhile, ratio, rateBefore, rateMeanwhile []float64
		for range b.rounds + 1 {
			r, err := l.run(b.ctx, gateway.addr, b.slice)
			if err != nil {
				return err
			}
			before, rateBefore = append(before, r.ms(0.99)), append(rateBefore, r.rate())
		}
		before, rateBefore = before[1:], rateBefore[1:] // the first one warmed up
		if time.Now().After(ends) {
			return fmt.Errorf("loading took so long that windows ended before the measurement did")
		}
		for time.Now().Before(ends.Add(time.Second)) && b.ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
		}
		own := spreadOf(before).Median
		begun, left := time.Now(), f.records
		for len(meanwhile) < b.rounds || left > 0 && len(meanwhile) < 40 {
			r, err := l.run(b.ctx, gateway.addr, b.slice)
			if err != nil {
				return err
			}
			if left, err = p.overdue(b); err != nil {
				return err
			}
			if left == 0 && len(meanwhile) > 0 {
				break
			}
			meanwhile, rateMeanwhile = append(meanwhile, r.ms(0.99)), append(rateMeanwhile, r.rate())
			ratio = append(ratio, r.ms(0.99)/own)
		}
		moved := float64(f.records-left) / time.Since(begun).Seconds()
		gateway.stop()
		s.Rows = append(s.Rows, []string{kind, spreadOf(before).format("%.1f"), spreadOf(meanwhile).format("%.1f"), spreadOf(ratio).format("%.2f"),
			spreadOf(rateBefore).format("%.0f"), spreadOf(rateMeanwhile).format("%.0f"), fmt.Sprintf("%.0f", moved)})
		b.report.judge(goal{Work: "p99 while 1 million records expire", Store: kind, Limit: 1.5, Got: spreadOf(ratio), Format: "%.2f", Unit: " of its own"})
	}
	b.report.add(s)
	return nil
}

// overdue counts the records whose window is over and that still have a response.
func (p *place) overdue(b *bench) (n int, err error) {
	if p.kind == onPostgres {
		err = ask(b.ctx, p.dsn, `SELECT count(*) FROM idempotency_due WHERE awaits = 'window' AND due_at <= now()`, &n)
		return n, err
	}
	db, err := sql.Open("sqlite", p.path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	err = db.QueryRow(`SELECT count(*) FROM idempotency_records WHERE state = 'completed' AND replay_until <= unixepoch() * 1000`).Scan(&n)
	return n, err
}
