package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// disk is what a record takes when its response is gone, after the churn that made
// it so: a claim, a completion, an expiry, by the engine itself. What takes a day
// in earnest takes seconds here, because replay windows are a second long; VACUUM
// runs as often as autovacuum would begin one.
func (b *bench) disk() error {
	records := b.some(200_000)
	const batches = 20
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
		for _, sweep := range []func() (int, error){
			func() (int, error) { return s.Abandon(b.ctx, 500) },
			func() (int, error) { return s.Expire(b.ctx, 500) },
		} {
			for moved := 500; moved == 500; {
				if moved, err = sweep(); err != nil {
					return err
				}
			}
		}
		if err := execute(b.ctx, p.dsn, "VACUUM idempotency_records", "VACUUM idempotency_responses", "VACUUM idempotency_due"); err != nil {
			return err
		}
	}
	// The last windows are a second from their end.
	time.Sleep(time.Second)
	for moved := 500; moved == 500; {
		if moved, err = s.Expire(b.ctx, 500); err != nil {
			return err
		}
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
				claim, _, err := s.Claim(b.ctx, id, store.Fingerprint{Algorithm: 1, Version: "v1"}, "", time.Minute)
				if err == nil {
					err = claim.Complete(b.ctx, store.Completion{Status: 201, Resource: "/orders/4711", Response: response, ReplayFor: time.Second})
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
