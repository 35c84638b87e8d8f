package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// roleUpstream as the first argument makes this program the upstream, in a
// process of its own.
const roleUpstream = "upstream"

// serveUpstream answers 201 with a Location and JSON, of the size and after the
// delay that the request's query asks for. It ends when its standard input does.
func serveUpstream() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		query := r.URL.Query()
		size, _ := strconv.Atoi(query.Get("size"))
		if delay, _ := time.ParseDuration(query.Get("delay")); delay > 0 {
			time.Sleep(delay)
		}
		body := jsonOf(size)
		w.Header()["Content-Type"] = []string{"application/json"}
		w.Header()["Location"] = []string{"/orders/4711"}
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	}))
}

// jsonOf is an order of so many bytes, of the same members whatever its size.
func jsonOf(size int) []byte {
	const order = `{"order":"4711","sku":"A-4711","quantity":3,"currency":"EUR","amount":"129.90","note":"%s"}`
	return fmt.Appendf(nil, order, strings.Repeat("x", max(size-len(order)+2, 1)))
}

// startUpstream returns its address.
func startUpstream(ctx context.Context) (addr string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, self, roleUpstream)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() { _ = stdin.Close(); _ = cmd.Wait() }
	if _, err := fmt.Fscanln(stdout, &addr); err != nil {
		stop()
		return "", nil, fmt.Errorf("starting %s as upstream: %w", filepath.Base(self), err)
	}
	return addr, stop, nil
}
