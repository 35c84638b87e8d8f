package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"
)

// errClosed says that the service died before this could be written.
var errClosed = errors.New("ledger is closed")

// errNoOrder says that there is no order of this id.
var errNoOrder = errors.New("no such order")

// entry is one line of the ledger; one of its members is set.
type entry struct {
	Execution  *Execution  `json:"execution,omitempty"`
	Incomplete *incomplete `json:"incomplete,omitempty"`
	Commit     *commit     `json:"commit,omitempty"`
	Change     *change     `json:"change,omitempty"`
}

type incomplete struct {
	At time.Time `json:"at"`
}

// commit makes an order.
type commit struct {
	Execution int   `json:"execution"`
	Order     Order `json:"order"`
}

// change changes one. The line holds what was asked for rather than the result: of two at once, the second changes what
// the first has made.
type change struct {
	Execution int     `json:"execution"`
	ID        string  `json:"id"`
	Members   members `json:"members"`

	result Order
}

// ledger is the state of the service: a file of JSON lines that is only ever appended to, and what it amounts to.
//
// A line counts once it is synced to the disk, and only then can anyone see what it did. Live and at start the same
// function (apply) does it, in the order of the lines, so a restart cannot come to another result.
//
// Writers that arrive while the disk is busy share the next sync: fill a batch, and the first of them flushes it for all.
type ledger struct {
	disk sync.Mutex // held by the one who writes and syncs; taken before the watched lock
	file *os.File

	watched // guards what follows
	failed  error
	filling *batch
	numbers struct{ executions, orders int } // given out, maybe not yet on disk

	executions []Execution
	orders     []Order
	byID       map[string]int // an order's place in orders
	counts     Stats
}

type batch struct {
	flush   sync.Once
	lines   []byte
	entries []*entry
	err     error
}

// arrive counts an execution, and returns its number.
func (l *ledger) arrive(x Execution) (int, error) {
	e := &entry{Execution: &x}
	err := l.append(e)
	return x.N, err
}

// breakOff counts a write of which only a part arrived.
func (l *ledger) breakOff() error {
	return l.append(&entry{Incomplete: &incomplete{At: time.Now().UTC()}})
}

// commit makes the order that an execution asked for.
func (l *ledger) commit(execution int, o Order) (Order, error) {
	c := &commit{Execution: execution, Order: o}
	err := l.append(&entry{Commit: c})
	return c.Order, err
}

// change changes an order as an execution asked for. Orders are never taken away, so one that exists now still does
// when the line is applied.
func (l *ledger) change(execution int, id string, m members) (Order, error) {
	if _, err := l.order(id); err != nil {
		return Order{}, err
	}
	c := &change{Execution: execution, ID: id, Members: m.pick()}
	err := l.append(&entry{Change: c})
	return c.result, err
}

// append returns when the entry is on disk and applied.
func (l *ledger) append(e *entry) error {
	b, err := l.fill(e)
	if err != nil {
		return err
	}
	b.flush.Do(func() { b.err = l.flush(b) })
	return b.err
}

func (l *ledger) fill(e *entry) (*batch, error) {
	l.Lock()
	defer l.Unlock()
	if l.failed != nil {
		return nil, l.failed
	}
	l.number(e)
	line, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encoding a ledger line: %w", err)
	}
	b := l.filling
	b.lines = append(append(b.lines, line...), '\n')
	b.entries = append(b.entries, e)
	return b, nil
}

// number gives out numbers in the order of the lines: the lock is held from here until the line is in its batch.
func (l *ledger) number(e *entry) {
	switch {
	case e.Execution != nil:
		l.numbers.executions++
		e.Execution.N = l.numbers.executions
	case e.Commit != nil:
		l.numbers.orders++
		e.Commit.Order.ID = orderID(l.numbers.orders)
	}
}

func orderID(n int) string {
	return fmt.Sprintf("ord-%d", n)
}

func (l *ledger) flush(b *batch) error {
	l.disk.Lock()
	defer l.disk.Unlock()

	l.Lock()
	l.filling = new(batch) // who comes from here on is in the next one
	failed := l.failed
	l.Unlock()
	if failed != nil {
		return failed
	}

	_, err := l.file.Write(b.lines)
	if err == nil {
		err = l.file.Sync()
	}

	l.Lock()
	defer l.Unlock()
	if err != nil {
		// What is on disk is unknown now, and a second sync would not tell: it may report success for pages that the
		// first one lost. Only a restart, which reads the file, may go on.
		l.failed = fmt.Errorf("writing the ledger: %w", err)
		return l.failed
	}
	for _, e := range b.entries {
		if err := l.apply(e); err != nil {
			l.failed = err
			return err
		}
	}
	l.changed()
	return nil
}

// apply is the only place where state changes. An error means that the line cannot follow the ones before it.
func (l *ledger) apply(e *entry) error {
	switch {
	case e.Execution != nil:
		x := *e.Execution
		if x.N != len(l.executions)+1 {
			return fmt.Errorf("execution %d follows execution %d", x.N, len(l.executions))
		}
		l.executions = append(l.executions, x)
		l.counts.ByReference[x.Reference]++
		l.counts.AcceptEncoding[x.AcceptEncoding]++
		if x.IdempotencyKey {
			l.counts.IdempotencyKeysSeen++
		}
	case e.Incomplete != nil:
		l.counts.Incomplete++
	case e.Commit != nil:
		o := e.Commit.Order
		if o.ID != orderID(len(l.orders)+1) {
			return fmt.Errorf("order %s follows %d orders", o.ID, len(l.orders))
		}
		x, err := l.executed(e.Commit.Execution, o.ID)
		if err != nil {
			return err
		}
		l.byID[o.ID] = len(l.orders)
		l.orders = append(l.orders, o)
		l.counts.OrdersByReference[x.Reference]++
	case e.Change != nil:
		i, ok := l.byID[e.Change.ID]
		if !ok {
			return fmt.Errorf("change of order %s: %w", e.Change.ID, errNoOrder)
		}
		if _, err := l.executed(e.Change.Execution, e.Change.ID); err != nil {
			return err
		}
		l.orders[i].set(e.Change.Members)
		l.orders[i].Version++
		e.Change.result = l.orders[i]
		l.counts.Changes++
	default:
		return errors.New("a line of no known kind")
	}
	return nil
}

// executed notes what an execution came to.
func (l *ledger) executed(n int, orderID string) (Execution, error) {
	if n < 1 || n > len(l.executions) {
		return Execution{}, fmt.Errorf("order %s comes from execution %d, of %d", orderID, n, len(l.executions))
	}
	x := &l.executions[n-1]
	x.Order = orderID
	return *x, nil
}

func (l *ledger) order(id string) (Order, error) {
	l.Lock()
	defer l.Unlock()
	i, ok := l.byID[id]
	if !ok {
		return Order{}, fmt.Errorf("order %q: %w", id, errNoOrder)
	}
	return l.orders[i], nil
}

// find returns the orders wanted, oldest first; never nil, so that it is a list in JSON.
func (l *ledger) find(wanted func(Order) bool) []Order {
	l.Lock()
	defer l.Unlock()
	found := []Order{}
	for _, o := range l.orders {
		if wanted(o) {
			found = append(found, o)
		}
	}
	return found
}

func (l *ledger) allExecutions() []Execution {
	l.Lock()
	defer l.Unlock()
	return append([]Execution{}, l.executions...)
}

func (l *ledger) stats() Stats {
	l.Lock()
	defer l.Unlock()
	return l.snapshot()
}

func (l *ledger) waitStats(ctx context.Context, wanted func(Stats) bool) (Stats, error) {
	var last Stats
	err := l.wait(ctx, func() bool {
		last = l.snapshot()
		return wanted(last)
	})
	return last, err
}

func (l *ledger) snapshot() Stats {
	s := l.counts
	s.Executions, s.Orders = len(l.executions), len(l.orders)
	s.ByReference = maps.Clone(s.ByReference)
	s.OrdersByReference = maps.Clone(s.OrdersByReference)
	s.AcceptEncoding = maps.Clone(s.AcceptEncoding)
	return s
}
