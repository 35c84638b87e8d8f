package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// section of the page.
type section struct {
	Title, Prose string
	Header       []string
	Rows         [][]string
	Plots        []plot
}

// report is what a run found.
type report struct {
	sections []section
	goals    []goal
	rounds   int
	slice    time.Duration
	took     time.Duration
}

func (r *report) add(s section) { r.sections = append(r.sections, s) }

func (r *report) judge(g goal) { r.goals = append(r.goals, g) }

// missed is an error that names the goals which are missed.
func (r *report) missed() error {
	var errs []error
	for _, g := range r.goals {
		if g.verdict() == missed {
			errs = append(errs, fmt.Errorf("goal missed: %s, %s: %s, wanted %s", g.Work, g.Store, g.got(), g.limit()))
		}
	}
	return errors.Join(errs...)
}

func (r *report) goalsTable() string {
	rows := make([][]string, len(r.goals))
	for i, g := range r.goals {
		rows[i] = []string{g.Work, g.Store, g.limit(), g.got(), string(g.verdict())}
	}
	return table([]string{"work", "store", "goal", "measured", ""}, rows)
}

const method = `Written by ` + "`make bench`" + `, which measures the gateway against the same Caddy with ` + "`reverse_proxy`" + ` alone. Both are
processes of one program, with the same settings but for the lines of the gateway, and access logs off. The generator is a closed loop: each client
sends its next request when the last one is answered. PostgreSQL has its own defaults, ` + "`fsync`" + ` among them, on the same machine's disk; so
have SQLite's commits.

The sides take turns, and a ratio is that of two turns which follow each other. Figures are the median of the rounds; in brackets is the middle
half of them. A goal counts as missed if it is missed by more than that.

Everything shares the cores of one machine: generator, upstream, Caddy and the database. So the ratios tell what the gateway's work costs where the
processor is the limit. A database on a machine of its own takes that part of the work away, and adds a round trip to each store call.
`

// write makes benchmarks.md and its plots in the directory.
func (r *report) write(dir string) error {
	const plots = "benchmarks"
	if err := os.MkdirAll(filepath.Join(dir, plots), 0o755); err != nil {
		return err
	}
	var page strings.Builder
	fmt.Fprintf(&page, "# Benchmarks\n\n%s\n", method)
	fmt.Fprintf(&page, "This run: %s, %s, %d rounds of %s a side, %s in all.\n\n", time.Now().UTC().Format(time.DateOnly), machine(), r.rounds, r.slice, r.took.Round(time.Second))
	if len(r.goals) > 0 {
		fmt.Fprintf(&page, "## Goals\n\n%s\n", r.goalsTable())
	}
	for _, s := range r.sections {
		fmt.Fprintf(&page, "## %s\n\n%s\n\n", s.Title, s.Prose)
		for _, p := range s.Plots {
			name := plots + "/" + p.Name + ".svg"
			if err := os.WriteFile(filepath.Join(dir, name), []byte(p.svg()), 0o644); err != nil {
				return err
			}
			fmt.Fprintf(&page, "![%s](%s)\n\n", p.Title, name)
		}
		page.WriteString(table(s.Header, s.Rows) + "\n")
	}
	return os.WriteFile(filepath.Join(dir, "benchmarks.md"), []byte(strings.TrimRight(page.String(), "\n")+"\n"), 0o644)
}

func table(header []string, rows [][]string) string {
	if len(rows) == 0 {
		return ""
	}
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(header)
	b.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

// machine says in a few words what this one is.
func machine() string {
	model := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d cores (%s), %s %s", runtime.NumCPU(), model, runtime.GOOS, runtime.Version())
}

// numbers as texts.
func numbers(values []int) []string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = fmt.Sprint(value)
	}
	return texts
}
