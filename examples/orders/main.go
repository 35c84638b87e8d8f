// Command orders runs a legacy order service: two orders for two POSTs, whatever they carry.
//
//	go run ./examples/orders -listen 127.0.0.1:8081 -data orders.jsonl
//
// It keeps its state in one file, survives kill -9, and goes wrong on request. Package service says how.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/caddy-idempotency/caddy-idempotency/examples/orders/service"
)

func main() {
	// The loopback address, because whoever reaches the service may tell it to die.
	listen := flag.String("listen", "127.0.0.1:8081", "address to listen on; port 0 takes a free one")
	data := flag.String("data", "orders.jsonl", "file that keeps the orders, made if it does not exist")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "orders: takes flags only, not %q\n", flag.Args())
		os.Exit(2)
	}
	if err := run(*listen, *data); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func run(listen, data string) error {
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()

	server, err := service.Start(listen, service.Config{
		Data: data,
		Die:  func() { os.Exit(diedByFault) },
	})
	if err != nil {
		return err
	}
	fmt.Println("orders: listening on", server.URL())
	select {
	case <-stop.Done():
		return server.Close()
	case <-server.Dead():
		return errors.New("stopped serving")
	}
}

// diedByFault is the exit status of a process that a fault killed: what a shell reports of kill -9.
const diedByFault = 137
