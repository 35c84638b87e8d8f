// Command bench measures what the gateway costs: the same Caddy with
// `reverse_proxy` alone is the measure, in the same run and on the same machine.
//
//	go run ./bench                        # everything; writes docs/benchmarks.md
//	go run ./bench -only first,replays    # some parts
//	go run ./bench -quick                 # seconds instead of minutes, to see that it works
//
// The two sides take turns in slices of a second or two, and a ratio is that of two
// slices that follow each other: what slows the machine down slows both. Each
// figure is the median of several rounds, printed with the middle half of them.
// It ends with status 1 if a goal is missed by more than that.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"crypto/rand"
)

// part is one subject.
type part struct {
	name, says string
	run        func(*bench) error
}

var parts = []part{
	{"generator", "the generator against the upstream, without a Caddy", (*bench).generator},
	{"first", "first writes", (*bench).firstWrites},
	{"replays", "replays", (*bench).replays},
	{"others", "mixture, hot key, mismatches", (*bench).others},
	{"single", "time added for one client", (*bench).single},
	{"slow", "first writes with an upstream of 300 ms, HOT updates", (*bench).slow},
	{"bodies", "bodies of 0.2 to 500 KB", (*bench).bodies},
	{"quotas", "first writes with quotas against first writes without", (*bench).quotas},
	{"cost", "PostgreSQL's CPU, WAL, transaction ids; allocations", (*bench).cost},
	{"designs", "plain reads and locks, prepared and not", (*bench).designs},
	{"processor", "who uses the cores; profiles of Caddy, in .run/bench", (*bench).processor},
	{"memory", "memory of 1,000 requests in flight", (*bench).memory},
	{"expiry", "one million records that expire meanwhile", (*bench).expiry},
	{"disk", "bytes on disk a record", (*bench).disk},
	{"records", "1 thousand, 1 million and 10 million records there", (*bench).manyRecords},
}

// bench is one run.
type bench struct {
	ctx    context.Context
	rounds int
	slice  time.Duration
	quick  bool

	run      string // its name, in those of databases
	dir      string
	caddy    string // program
	upstream string // address
	server   string // connection string of PostgreSQL; "" until it is needed
	places   int
	ends     []func()
	begun    time.Time

	report report
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == roleUpstream {
		exit(serveUpstream())
	}
	var names []string
	for _, p := range parts {
		names = append(names, fmt.Sprintf("  %-10s %s", p.name, p.says))
	}
	only := flag.String("only", "", "parts to run, with commas between them:\n"+strings.Join(names, "\n"))
	rounds := flag.Int("rounds", 5, "rounds of what has a goal; the rest has half as many")
	slice := flag.Duration("slice", time.Second, "how long one side's turn is")
	quick := flag.Bool("quick", false, "short slices, few rounds, few records: the figures mean nothing")
	out := flag.String("out", "", "directory of benchmarks.md; docs after a complete run, .run/bench after any other")
	flag.Parse()

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	b := &bench{ctx: ctx, rounds: *rounds, slice: *slice, quick: *quick, run: rand.Text()[:8], begun: time.Now()}
	chosen := parts
	if *only != "" {
		wanted := strings.Split(*only, ",")
		for _, name := range wanted {
			if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
				exit(fmt.Errorf("no part is called %q; there are:\n%s", name, strings.Join(names, "\n")))
			}
		}
		chosen = slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return !slices.Contains(wanted, p.name) })
	}
	if b.quick {
		b.rounds, b.slice = 3, 200*time.Millisecond
	}
	if *out == "" {
		*out = ".run/bench"
		if *only == "" && !b.quick {
			*out = "docs"
		}
	}
	exit(b.all(chosen, *out))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (b *bench) all(chosen []part, out string) (err error) {
	defer func() {
		for _, end := range slices.Backward(b.ends) {
			end()
		}
	}()
	if err := b.prepare(); err != nil {
		return err
	}
	for _, p := range chosen {
		since := time.Now()
		b.say("%s: %s", p.name, p.says)
		if err := p.run(b); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		b.say("%s took %s", p.name, time.Since(since).Round(time.Second))
	}
	b.report.rounds, b.report.slice, b.report.took = b.rounds, b.slice, time.Since(b.begun)
	if err := b.report.write(out); err != nil {
		return err
	}
	b.say("wrote %s/benchmarks.md", out)
	fmt.Println(b.report.goalsTable())
	return b.report.missed()
}

func (b *bench) prepare() (err error) {
	if b.dir, err = os.MkdirTemp("", "idempotency-bench-"); err != nil {
		return err
	}
	b.atEnd(func() { _ = os.RemoveAll(b.dir) })
	if b.caddy, err = buildCaddy(b.ctx, b.dir); err != nil {
		return err
	}
	var stop func()
	if b.upstream, stop, err = startUpstream(b.ctx); err != nil {
		return err
	}
	b.atEnd(stop)
	return nil
}

// atEnd runs the last one first.
func (b *bench) atEnd(end func()) { b.ends = append(b.ends, end) }

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(b.begun).Seconds(), fmt.Sprintf(format, args...))
}

// few is a number of rounds for what has no goal.
func (b *bench) few() int { return max((b.rounds+1)/2, 2) }

// some is n, or very few of them if the run is to be quick.
func (b *bench) some(n int) int {
	if b.quick {
		return max(n/200, 50)
	}
	return n
}
