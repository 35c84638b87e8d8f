package stage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Config of a Stage.
type Config struct {
	// Caddyfile of the gateway. It listens on {$PORT} and leads to {$ORDERS}, as the
	// top-level Caddyfile does.
	Caddyfile string

	// Caddy is the gateway's program. Default: it is built of this checkout.
	Caddy string

	// Env for the gateway, as NAME=value, besides the environment of this process.
	Env []string
}

// Stage is an order service and a gateway before it.
type Stage struct {
	Dir     string // that holds everything; removed by Close
	Address string // of the gateway, host:port
	Admin   string // of the gateway's admin endpoint, host:port
	Orders  string // URL of the order service, without the gateway
	Gateway *Process

	config  Config
	service *Process
}

// Open builds the programs and starts both.
func Open(ctx context.Context, config Config) (s *Stage, err error) {
	s = &Stage{config: config}
	if s.Dir, err = os.MkdirTemp("", "idempotency-stage-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.config.Caddyfile, err = filepath.Abs(config.Caddyfile); err != nil {
		return nil, err
	}
	if err = s.build(ctx); err != nil {
		return nil, err
	}
	if err = s.startOrders(ctx); err != nil {
		return nil, err
	}
	return s, s.openGateway(ctx)
}

// Close ends both processes and removes what they kept.
func (s *Stage) Close() error {
	s.Gateway.Kill()
	s.service.Kill()
	return os.RemoveAll(s.Dir)
}

func (s *Stage) build(ctx context.Context) error {
	packages := []string{"./examples/orders"}
	if s.config.Caddy == "" {
		packages = append(packages, "./cmd/caddy")
		s.config.Caddy = filepath.Join(s.Dir, "caddy"+exe())
	}
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("looking for the checkout: %w", err)
	}
	if s.config.Caddy, err = filepath.Abs(s.config.Caddy); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", append([]string{"build", "-o", s.Dir + string(filepath.Separator)}, packages...)...)
	build.Dir = filepath.Dir(strings.TrimSpace(string(mod)))
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

func exe() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}

// startOrders starts the order service, which takes a free port and says which.
func (s *Stage) startOrders(ctx context.Context) (err error) {
	s.service, err = start(s.Dir, nil, filepath.Join(s.Dir, "orders"+exe()), "-listen", "127.0.0.1:0", "-data", "orders.jsonl")
	if err != nil {
		return err
	}
	return s.service.until(ctx, "starting the order service", func(context.Context) bool {
		line, ended := cutLine(s.service.Log())
		s.Orders = strings.TrimPrefix(line, "orders: listening on ")
		return ended
	})
}

func cutLine(text string) (line string, ended bool) {
	line, _, ended = strings.Cut(text, "\n")
	return line, ended
}

// openGateway starts the gateway on free ports. Between finding a port and taking
// it, another process may take it: then all begins anew.
func (s *Stage) openGateway(ctx context.Context) (err error) {
	const tries = 3
	for range tries {
		if s.Address, err = freeAddress(); err != nil {
			return err
		}
		if s.Admin, err = freeAddress(); err != nil {
			return err
		}
		if err = s.StartGateway(ctx); err == nil || !strings.Contains(s.Gateway.Log(), "address already in use") {
			return err
		}
	}
	return err
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// StartGateway starts the gateway, again if it was killed: on the same address,
// with the same data directory.
func (s *Stage) StartGateway(ctx context.Context) (err error) {
	_, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return err
	}
	data := filepath.Join(s.Dir, "data")
	env := append([]string{
		"PORT=" + port, "ORDERS=" + strings.TrimPrefix(s.Orders, "http://"), "CADDY_ADMIN=" + s.Admin,
		"XDG_DATA_HOME=" + data, "XDG_CONFIG_HOME=" + data,
	}, s.config.Env...)
	s.Gateway, err = start(s.Dir, env, s.config.Caddy, "run", "--config", s.config.Caddyfile, "--adapter", "caddyfile")
	if err != nil {
		return err
	}
	return s.Gateway.until(ctx, "starting the gateway", func(context.Context) bool {
		return strings.Contains(s.Gateway.Log(), "serving initial configuration") // all apps are started by then
	})
}
