package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// cost is what requests take of the database and of Caddy.
func (b *bench) cost() error {
	const clients = 64
	s := section{Title: "What a request takes", Header: []string{"work", "PostgreSQL CPU, µs", "WAL, bytes", "transaction ids", "gateway allocations", "of so many bytes", "bare allocations", "of so many bytes"},
		Prose: "By 64 clients. The processor's time is that of all of the server's processes, by the kernel's accounts, for all statements of a request and " +
			"for checkpoints; allocations are those of Caddy's whole process. The sweeper rests meanwhile."}
	p, bare, gateway, stop, err := b.pair(onPostgres, "sweep_every 1h")
	if err != nil {
		return err
	}
	defer stop()
	watcher, err := pgx.Connect(b.ctx, p.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Close(b.ctx) }()
	var primary section
	there, err := b.complete(gateway, smallBody)
	if err != nil {
		return err
	}
	for _, w := range []struct {
		name string
		load load
	}{{"first write", firstWrite(clients, 0, smallBody)}, {"replay", replay(clients, smallBody, there)}} {
		var cpu, wal, ids, objects, bytes, bareObjects, bareBytes []float64
		for range b.rounds {
			o, n, _, err := b.allocations(bare, w.load)
			if err != nil {
				return err
			}
			bareObjects, bareBytes = append(bareObjects, o), append(bareBytes, n)

			before, err := readServer(b.ctx, watcher)
			if err != nil {
				return err
			}
			o, n, requests, err := b.allocations(gateway, w.load)
			if err != nil {
				return err
			}
			after, err := readServer(b.ctx, watcher)
			if err != nil {
				return err
			}
			objects, bytes = append(objects, o), append(bytes, n)
			cpu = append(cpu, float64((after.cpu-before.cpu).Microseconds())/requests)
			wal = append(wal, float64(after.wal-before.wal)/requests)
			ids = append(ids, float64(after.nextID-before.nextID)/requests)
		}
		s.Rows = append(s.Rows, []string{w.name, spreadOf(cpu).format("%.0f"), spreadOf(wal).format("%.0f"), spreadOf(ids).format("%.4f"),
			spreadOf(objects).format("%.0f"), spreadOf(bytes).format("%.0f"), spreadOf(bareObjects).format("%.0f"), spreadOf(bareBytes).format("%.0f")})
		if w.name == "first write" {
			primary = onePrimary(spreadOf(cpu).Median, spreadOf(wal).Median, spreadOf(ids).Median)
			b.report.judge(goal{Work: "server CPU of a first write", Store: onPostgres, Limit: 60, Got: spreadOf(cpu), Format: "%.0f", Unit: " µs"})
		} else {
			b.report.judge(goal{Work: "transaction ids of a replay far from expiry", Store: onPostgres, Limit: 0, Got: spreadOf(ids), Format: "%.4f"})
		}
	}
	b.report.add(s)
	b.report.add(primary)
	return nil
}

// onePrimary goes on from what a first write took to what a server could take.
func onePrimary(cpu, wal, ids float64) section {
	const day, freezeAge = 24 * 60 * 60, 200e6
	s := section{Title: "What one primary takes, on paper", Header: []string{"cores for PostgreSQL", "first writes a second", "WAL, MB a second", "days until a freeze is due"},
		Prose: "**Extrapolated, not measured**: the processor's time of a first write, above, on so many cores of this machine that do nothing else, as if they did " +
			"not wait for each other; its WAL at that rate; and how long it takes to use the 200 million transaction ids after which PostgreSQL freezes rows " +
			"(`autovacuum_freeze_max_age`), which reads each page once that has changed since the last time. Calls that share a transaction share its id."}
	for _, cores := range []float64{1, 4, 16} {
		rate := cores * 1e6 / cpu
		s.Rows = append(s.Rows, []string{fmt.Sprint(cores), fmt.Sprintf("%.0f", rate), fmt.Sprintf("%.0f", rate*wal/1e6), fmt.Sprintf("%.1f", freezeAge/(rate*ids*day))})
	}
	return s
}

// allocations runs one turn and divides what Caddy allocated by its requests.
func (b *bench) allocations(c *caddy, l load) (objects, bytes, requests float64, err error) {
	o1, b1, err := c.mallocs()
	if err != nil {
		return 0, 0, 0, err
	}
	r, err := l.run(b.ctx, c.addr, b.slice)
	if err != nil {
		return 0, 0, 0, err
	}
	o2, b2, err := c.mallocs()
	n := float64(r.requests())
	return float64(o2-o1) / n, float64(b2-b1) / n, n, err
}

// serverState is what the server has used up to now.
type serverState struct {
	cpu    time.Duration
	wal    int64 // bytes
	nextID int64 // transaction id
}

// readServer takes no transaction id itself: pg_current_xact_id would.
func readServer(ctx context.Context, conn *pgx.Conn) (s serverState, err error) {
	var backend int
	err = conn.QueryRow(ctx, `
		SELECT pg_backend_pid(), (pg_current_wal_insert_lsn() - '0/0')::bigint,
			pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&backend, &s.wal, &s.nextID)
	if err != nil {
		return s, err
	}
	s.cpu, err = serverCPU(backend)
	return s, err
}

// ticksPerSecond is USER_HZ, which is 100 wherever Linux runs Go.
const ticksPerSecond = 100

// serverCPU is what the server that this backend belongs to has used: its first
// process, all children of it that live, and all that it has waited for.
func serverCPU(backend int) (time.Duration, error) {
	own, err := readStat(strconv.Itoa(backend))
	if err != nil {
		return 0, fmt.Errorf("finding the server's processes: it must run on this machine: %w", err)
	}
	server, err := readStat(strconv.Itoa(own.parent))
	if err != nil {
		return 0, err
	}
	ticks := server.own + server.children
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, process := range processes {
		// One that has ended meanwhile is in the first process's account.
		if stat, err := readStat(filepath.Base(process)); err == nil && stat.parent == own.parent {
			ticks += stat.own
		}
	}
	return inTime(ticks), nil
}

func inTime(ticks int) time.Duration { return time.Duration(ticks) * time.Second / ticksPerSecond }

// processStat is a part of /proc/PID/stat: times in ticks, user's and system's.
type processStat struct{ parent, own, children int }

func readStat(pid string) (s processStat, err error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return s, err
	}
	// The name, in brackets, may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 15 {
		return s, fmt.Errorf("/proc/%s/stat has %d fields", pid, len(fields))
	}
	number := func(i int) int { n, _ := strconv.Atoi(fields[i]); return n }
	return processStat{parent: number(1), own: number(11) + number(12), children: number(13) + number(14)}, nil
}

// updates counts those of records, and how many of them were HOT, as soon as the
// sessions have reported what they did.
type updates struct{ all, hot int64 }

func (b *bench) updatesOf(p *place) (u updates, err error) {
	for last := int64(-1); u.all != last; time.Sleep(2 * time.Second) {
		last = u.all
		if err := b.ctx.Err(); err != nil {
			return u, err
		}
		if err := ask(b.ctx, p.dsn, `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'idempotency_records'`, &u.all, &u.hot); err != nil {
			return u, err
		}
	}
	return u, nil
}

func (b *bench) judgeHOT(before, after updates) {
	all := after.all - before.all
	share := 100 * float64(after.hot-before.hot) / float64(all)
	b.report.judge(goal{Work: fmt.Sprintf("HOT updates, upstream of 300 ms, 64 clients, of %d", all), Store: onPostgres, Limit: 95, AtLeast: true,
		Got: spreadOf([]float64{share}), Format: "%.1f", Unit: " %"})
}
