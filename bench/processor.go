package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// processor tells who used the machine's cores during first writes. It leaves
// profiles of Caddy, which had turns of their own: looking costs.
func (b *bench) processor() error {
	s := section{Title: "Where the processor's time goes", Header: []string{"store", "side", "req/s", "Caddy, µs", "PostgreSQL, µs", "idle, µs", "the rest, µs"},
		Prose: "First writes by 64 clients: what a request takes of all cores, by the kernel's accounts. SQLite works within Caddy. " +
			"The rest is the generator, the upstream, and what the kernel did for nobody in particular."}
	l := firstWrite(64, 0, smallBody)
	for _, kind := range kinds {
		p, bare, gateway, stop, err := b.pair(kind, "sweep_every 1h")
		if err != nil {
			return err
		}
		defer stop()
		for _, side := range []struct {
			name string
			*caddy
		}{{"bare", bare}, {"gateway", gateway}} {
			var columns [5][]float64
			for range b.rounds {
				a, err := b.account(p, side.caddy, l)
				if err != nil {
					return err
				}
				for i, value := range []float64{a.rate, a.caddy, a.server, a.idle, a.rest} {
					columns[i] = append(columns[i], value)
				}
			}
			row := []string{kind, side.name}
			for _, values := range columns {
				row = append(row, spreadOf(values).format("%.0f"))
			}
			s.Rows = append(s.Rows, row)
			for _, profile := range []string{"profile", "allocs"} {
				if err := b.saveProfile(side.caddy, l, profile, fmt.Sprintf("%s-%s.%s", strings.ToLower(kind), side.name, profile)); err != nil {
					return err
				}
			}
		}
	}
	b.report.add(s)
	return nil
}

// account is what one turn took: requests a second, and microseconds of a core for
// each of them.
type account struct{ rate, caddy, server, idle, rest float64 }

func (b *bench) account(p *place, c *caddy, l load) (a account, err error) {
	before, err := b.readCores(p, c)
	if err != nil {
		return a, err
	}
	r, err := l.run(b.ctx, c.addr, b.slice)
	if err != nil {
		return a, err
	}
	after, err := b.readCores(p, c)
	if err != nil {
		return a, err
	}
	each := func(now, then time.Duration) float64 {
		return float64((now - then).Microseconds()) / float64(r.requests())
	}
	a = account{
		rate: r.rate(), caddy: each(after.caddy, before.caddy), server: each(after.server, before.server), idle: each(after.idle, before.idle),
	}
	a.rest = each(after.all, before.all) - a.caddy - a.server - a.idle
	return a, nil
}

// coreTime is how the time of all cores was used up to now.
type coreTime struct{ all, idle, caddy, server time.Duration }

func (b *bench) readCores(p *place, c *caddy) (m coreTime, err error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m, err
	}
	total, _, _ := strings.Cut(string(stat), "\n")
	for i, field := range strings.Fields(total)[1:9] { // guests' time, which follows, is in user's
		ticks, _ := strconv.Atoi(field)
		m.all += inTime(ticks)
		if i == 3 || i == 4 { // idle, and idle while a disk was waited for
			m.idle += inTime(ticks)
		}
	}
	process, err := readStat(strconv.Itoa(c.cmd.Process.Pid))
	if err != nil {
		return m, err
	}
	m.caddy = inTime(process.own)
	if p.kind == onPostgres {
		m.server, err = b.serverCPU(p)
	}
	return m, err
}

func (b *bench) serverCPU(p *place) (time.Duration, error) {
	conn, err := pgx.Connect(b.ctx, p.dsn)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(b.ctx)) }()
	return serverCPU(int(conn.PgConn().PID()))
}

// saveProfile asks Caddy for one of Go's profiles, of a turn.
func (b *bench) saveProfile(c *caddy, l load, profile, name string) error {
	const dir, seconds = ".run/bench", 3
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := l.run(b.ctx, c.addr, (seconds+1)*time.Second)
		ended <- err
	}()
	answer, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/%s?seconds=%d", c.admin, profile, seconds))
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
		return err
	}
	return <-ended
}
