package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// keyLength is that of every key, so that a key is written over another in place.
const keyLength = 32

type key [keyLength]byte

// newKey is random, as clients' keys are: it falls anywhere in an index.
func newKey() (k key) {
	var raw [keyLength / 2]byte
	for i := range len(raw) / 8 {
		for j, n := 0, rand.Uint64(); j < 8; j++ {
			raw[8*i+j] = byte(n >> (8 * j))
		}
	}
	hex.Encode(k[:], raw[:])
	return k
}

// load is a closed loop: each client sends its next request when the last one is
// answered. Requests are made once and written to kept connections as they are,
// and of an answer only its status and length are read: the generator shares the
// machine with what it measures.
type load struct {
	clients int
	target  string // path and query
	body    []byte
	nextKey func() key
	accept  int // status; any other one ends the run
}

// result of one slice of time.
type result struct {
	latencies []time.Duration // sorted
	elapsed   time.Duration
}

func (r result) requests() int { return len(r.latencies) }

func (r result) rate() float64 { return float64(len(r.latencies)) / r.elapsed.Seconds() }

// run sends to the address for a while. Connections are there before it begins.
func (l load) run(ctx context.Context, addr string, d time.Duration) (result, error) {
	conns := make([]net.Conn, l.clients)
	for i := range conns {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return result{}, err
		}
		defer func() { _ = conn.Close() }()
		conns[i] = conn
	}
	stopWatching := context.AfterFunc(ctx, func() {
		for _, conn := range conns {
			_ = conn.SetDeadline(time.Now())
		}
	})
	defer stopWatching()

	var (
		group sync.WaitGroup
		over  atomic.Bool
		mu    sync.Mutex
		all   []time.Duration
		first error
	)
	begun := time.Now()
	timer := time.AfterFunc(d, func() { over.Store(true) })
	defer timer.Stop()
	for _, conn := range conns {
		group.Go(func() {
			latencies, err := l.client(conn, addr, &over)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, latencies...)
			if err != nil && first == nil {
				first = err
				over.Store(true)
			}
		})
	}
	group.Wait()
	elapsed := time.Since(begun)
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	slices.Sort(all)
	return result{latencies: all, elapsed: elapsed}, first
}

func (l load) client(conn net.Conn, addr string, over *atomic.Bool) ([]time.Duration, error) {
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	request, at := l.request(addr)
	reader := bufio.NewReaderSize(conn, 16<<10)
	latencies := make([]time.Duration, 0, 4096)
	for !over.Load() {
		k := l.nextKey()
		copy(request[at:], k[:])
		sent := time.Now()
		if _, err := conn.Write(request); err != nil {
			return latencies, err
		}
		status, err := readAnswer(reader)
		if err != nil {
			return latencies, fmt.Errorf("reading answer: %w", err)
		}
		latencies = append(latencies, time.Since(sent))
		if status != l.accept {
			return latencies, fmt.Errorf("%s answered %d, not %d", addr, status, l.accept)
		}
	}
	return latencies, nil
}

// request returns the bytes of a request and where in them the key stands.
func (l load) request(addr string) (request []byte, at int) {
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nIdempotency-Key: ",
		l.target, addr, len(l.body))
	return slices.Concat([]byte(head), bytes.Repeat([]byte{'0'}, keyLength), []byte("\r\n\r\n"), l.body), len(head)
}

// readAnswer reads one answer that says its length, as all of those here do.
func readAnswer(r *bufio.Reader) (status int, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 12 {
		return 0, errors.New("no status line")
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, err
	}
	length := -1
	const name = "content-length:"
	for {
		if line, err = r.ReadSlice('\n'); err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			break
		}
		if len(line) > len(name) && strings.EqualFold(string(line[:len(name)]), name) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(name):]))); err != nil {
				return 0, err
			}
		}
	}
	if length < 0 {
		return 0, errors.New("answer without a length")
	}
	_, err = io.CopyN(io.Discard, r, int64(length))
	return status, err
}
