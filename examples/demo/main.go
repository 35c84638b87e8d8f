// Command demo tells the story of the gateway by itself: it starts the order
// service and the gateway as processes of their own, sends what a client would
// send, and shows what comes back and what the order service counted.
//
//	go run ./examples/demo
//
// It ends with status 1 if anything is not as told. With IDEMPOTENCY_STORE set, as
// in the Caddyfile beside it, the records are there.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/caddy-idempotency/caddy-idempotency/internal/stage"
)

func main() {
	caddyfile := flag.String("config", "examples/demo/Caddyfile", "the gateway's Caddyfile")
	caddy := flag.String("caddy", "", "the gateway's program; without it, one is built of this checkout")
	flag.Parse()

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, stage.Config{Caddyfile: *caddyfile, Caddy: *caddy}); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, config stage.Config) error {
	fmt.Println("Building and starting the gateway and the order service ...")
	s, err := stage.Open(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()

	t := &teller{ctx: ctx, stage: s, run: runMark()}
	for i, scene := range story {
		fmt.Printf("\n%d. %s\n", i+1, scene.title)
		if err := t.tell(scene.play); err != nil {
			return fmt.Errorf("scene %d, %s: %w\n\nThe gateway's log:\n%s", i+1, scene.title, err, s.Gateway.Log())
		}
	}
	fmt.Println("\nEverything went as told.")
	return nil
}

// runMark tells the keys of one run from those of another, where records outlive
// the demo.
func runMark() string {
	if os.Getenv("IDEMPOTENCY_STORE") == "" {
		return ""
	}
	return fmt.Sprintf("-%d", os.Getpid())
}
