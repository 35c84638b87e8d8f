package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// caddyfile is the same for both sides, but for the lines of the gateway. Kept
// connections to the upstream are enough for every client: Caddy keeps 32 unless
// told otherwise, and more clients would measure how connections are made.
const caddyfile = `{
	admin %s
	persist_config off
	auto_https off
	log {
		level ERROR
	}
	%s
}

http://%s {
	%s
	reverse_proxy %s {
		transport http {
			keepalive_idle_conns_per_host 2048
		}
	}
}
`

const protected = `idempotency {
		actor shared
		operation create-order
		%s
	}`

// caddy is one running process.
type caddy struct {
	addr, admin string
	cmd         *exec.Cmd
	exited      chan struct{}
}

// buildCaddy makes the program that users get.
func buildCaddy(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "caddy")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/caddy").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building Caddy, in the repository's root: %w\n%s", err, out)
	}
	return path, nil
}

// bare starts Caddy with reverse_proxy alone.
func (b *bench) bare() (*caddy, error) { return b.startCaddy("", "") }

// gateway starts Caddy with the gateway, on this place. Options are those of the
// global block.
func (b *bench) gateway(p *place, options string) (*caddy, error) {
	return b.startCaddy("idempotency {\n"+p.store()+"\n"+options+"\n}", fmt.Sprintf(protected, ""))
}

// bounded starts the gateway with quotas that are never exceeded.
func (b *bench) bounded(p *place) (*caddy, error) {
	return b.startCaddy("idempotency {\n"+p.store()+"\n}", fmt.Sprintf(protected, `quota actor {
			max_executing 10000
			max_new_keys  100000000/1h
		}`))
}

func (b *bench) startCaddy(global, site string) (*caddy, error) {
	c := &caddy{exited: make(chan struct{})}
	dir, err := os.MkdirTemp(b.dir, "caddy-")
	if err != nil {
		return nil, err
	}
	for _, addr := range []*string{&c.addr, &c.admin} {
		if *addr, err = freeAddr(); err != nil {
			return nil, err
		}
	}
	config := filepath.Join(dir, "Caddyfile")
	text := fmt.Sprintf(caddyfile, c.admin, global, c.addr, site, b.upstream)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	c.cmd = exec.Command(b.caddy, "run", "--config", config, "--adapter", "caddyfile")
	c.cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = c.cmd.Wait(); close(c.exited) }()
	if err := c.awaitReady(b.ctx); err != nil {
		c.stop()
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("starting Caddy: %w\n%s", err, said)
	}
	return c, nil
}

// awaitReady waits for the first answer. It is a request without a key, which a
// gateway refuses and a bare proxy forwards.
func (c *caddy) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.addr+"/", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			return answer.Body.Close()
		}
		select {
		case <-c.exited:
			return fmt.Errorf("it has ended")
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *caddy) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.exited:
	case <-time.After(30 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.exited
	}
}

// mallocs counts what this process has ever allocated.
func (c *caddy) mallocs() (objects, bytes uint64, err error) {
	answer, err := http.Get("http://" + c.admin + "/debug/vars")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	var vars struct {
		MemStats struct{ Mallocs, TotalAlloc uint64 } `json:"memstats"`
	}
	err = json.NewDecoder(answer.Body).Decode(&vars)
	return vars.MemStats.Mallocs, vars.MemStats.TotalAlloc, err
}

// peakMemory is the most that was resident at once, in MiB.
func (c *caddy) peakMemory() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kib); n == 1 {
			return kib / 1024, nil
		}
	}
	return 0, fmt.Errorf("no VmHWM in /proc")
}

func freeAddr() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String(), nil
}
