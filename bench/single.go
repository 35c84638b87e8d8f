package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// flushTime is how long this disk takes for what a commit asks of it: 8 KiB
// appended to a file, and flushed. The median of many.
func flushTime(dir string) (time.Duration, error) {
	file, err := os.Create(filepath.Join(dir, "flushes"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close(); _ = os.Remove(file.Name()) }()
	block := make([]byte, 8<<10)
	times := make([]time.Duration, 300)
	for i := range times {
		begun := time.Now()
		if _, err := file.Write(block); err != nil {
			return 0, err
		}
		if err := flush(file); err != nil {
			return 0, err
		}
		times[i] = time.Since(begun)
	}
	slices.Sort(times)
	return percentile(times, 0.5), nil
}

// single compares latencies where nothing else is going on.
func (b *bench) single() error {
	s := section{Title: "One client", Header: []string{"store", "bare mean, ms", "added p50, ms", "two flushes, ms", "added beyond them, ms"},
		Prose: "A first write waits for two commits, that of its claim and that of its completion. The table compares what it adds to the median latency with " +
			"twice the time that this disk takes to flush 8 KiB which were appended to a file, measured at the same time."}
	for _, kind := range kinds {
		_, bare, gateway, stop, err := b.pair(kind, "")
		if err != nil {
			return err
		}
		defer stop()
		l := firstWrite(1, 0, smallBody)
		var bares, added, beyond, flushes []float64
		for range b.rounds {
			once, err := flushTime(b.dir)
			if err != nil {
				return err
			}
			c, err := b.against(bare, gateway, l, 1)
			if err != nil {
				return err
			}
			two := 2 * once.Seconds() * 1000
			flushes = append(flushes, two)
			added = append(added, c.MedianAdded.Median)
			beyond = append(beyond, c.MedianAdded.Median-two)
			bares = append(bares, 1000/c.Base.Median)
		}
		stop()
		s.Rows = append(s.Rows, []string{kind, spreadOf(bares).format("%.2f"), spreadOf(added).format("%.2f"),
			spreadOf(flushes).format("%.2f"), spreadOf(beyond).format("%.2f")})
		limit := map[string]float64{onPostgres: 0.4, onSQLite: 0.3}[kind]
		b.report.judge(goal{Work: fmt.Sprintf("first write, 1 client: time added beyond two flushes of %.2f ms", spreadOf(flushes).Median/2), Store: kind,
			Limit: limit, Got: spreadOf(beyond), Format: "%.2f", Unit: " ms"})
	}
	b.report.add(s)
	return nil
}
