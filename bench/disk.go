package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

const (
	lease     = time.Second
	replayFor = 2 * time.Second // longer, as always where the completion is the routine one
)

// disk is what a record takes when its response is gone, after the churn that made
// it so: a claim, a completion, an expiry, by the engine itself. What takes a day
// in earnest takes seconds here, because leases are a second long, and replay windows
// two; VACUUM runs as often as autovacuum would begin one.
func (b *bench) disk() error {
	const batches = 20
	records := b.some(200_000)
	p, err := b.newPlace(onPostgres)
	if err != nil {
		return err
	}
	engine, err := p.open(b.ctx)
	if err != nil {
		return err
	}
	s := store.New(engine)
	defer func() { _ = s.Close() }()
	for range batches {
		if err := b.churn(s, records/batches); err != nil {
			return err
		}
		if err := sweep(b.ctx, s); err != nil {
			return err
		}
		if err := execute(b.ctx, p.dsn, "VACUUM idempotency_records", "VACUUM idempotency_responses", "VACUUM idempotency_due"); err != nil {
			return err
		}
	}
	time.Sleep(replayFor) // the last windows end
	if err := sweep(b.ctx, s); err != nil {
		return err
	}
	if err := execute(b.ctx, p.dsn, "VACUUM (ANALYZE) idempotency_records", "VACUUM (ANALYZE) idempotency_due"); err != nil {
		return err
	}

	var table, indexes, due, expired, all float64
	err = ask(b.ctx, p.dsn, `SELECT pg_table_size('idempotency_records'), pg_indexes_size('idempotency_records'),
		pg_total_relation_size('idempotency_due'),
		(SELECT count(*) FROM idempotency_records WHERE state = 'expired'), (SELECT count(*) FROM idempotency_records)`,
		&table, &indexes, &due, &expired, &all)
	if err != nil {
		return err
	}
	if expired != all {
		return fmt.Errorf("of %.0f records, %.0f are expired", all, expired)
	}
	b.report.add(section{Title: "On disk", Header: []string{"records", "table, bytes a record", "its indexes", "list of what is due, with its index", "all"},
		Prose: "PostgreSQL, tombstones: records that were claimed, completed with a response of 0.2 KB, and expired. Keys of 32 bytes, a `Location` of 12.",
		Rows: [][]string{{fmt.Sprintf("%.0f", all), fmt.Sprintf("%.0f", table/all), fmt.Sprintf("%.0f", indexes/all),
			fmt.Sprintf("%.0f", due/all), fmt.Sprintf("%.0f", (table+indexes+due)/all)}}})
	b.report.judge(goal{Work: "bytes on disk a record without its response", Store: onPostgres, Limit: 250,
		Got: spreadOf([]float64{(table + indexes + due) / all}), Format: "%.0f"})
	return nil
}

// sweep moves on whatever is over.
func sweep(ctx context.Context, s *store.Store) (err error) {
	const limit = 500
	for _, move := range []func(context.Context, int) (int, error){s.Abandon, s.Expire} {
		for moved := limit; moved == limit; {
			if moved, err = move(ctx, limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// churn claims and completes so many records, some at once.
func (b *bench) churn(s *store.Store, records int) error {
	const workers = 16
	var group sync.WaitGroup
	errs := make([]error, workers)
	response := &store.Response{
		Header: map[string][]string{"Content-Type": {"application/json"}, "Location": {"/orders/4711"}},
		Body:   []byte(strings.Repeat("x", smallBody)),
	}
	for worker := range workers {
		group.Go(func() {
			for n := worker; n < records && errs[worker] == nil; n += workers {
				k := newKey()
				id := store.Identity{Scope: store.Scope{Tenant: "default", Actor: "shared", Operation: "create-order"}, Key: string(k[:])}
				claim, _, err := s.Claim(b.ctx, id, store.Fingerprint{Algorithm: 1, Version: "v1"}, "", lease)
				if err == nil {
					err = claim.Complete(b.ctx, store.Completion{Status: 201, Resource: "/orders/4711", Response: response, ReplayFor: replayFor})
				}
				errs[worker] = err
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
