package caddymodule_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
)

// patience is how long a story waits for what comes within milliseconds, or never.
const patience = 30 * time.Second

// process is one running Caddy.
type process struct {
	cmd    *exec.Cmd
	log    *logBook
	life   io.WriteCloser // its standard input: it ends when this does
	exited chan struct{}
	err    error // of Wait; set when exited is closed
}

// startProcess starts Caddy on a Caddyfile. It does not wait until it serves.
func startProcess(t *testing.T, dir, caddyfile string) *process {
	t.Helper()
	path, err := program()
	require.NoError(t, err)
	file := filepath.Join(dir, "Caddyfile")
	require.NoError(t, os.WriteFile(file, []byte(caddyfile), 0o600))

	p := &process{cmd: exec.Command(path, "run", "--config", file, "--adapter", "caddyfile"), log: new(logBook), exited: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	p.life, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		p.log.read(stderr)
		p.err = p.cmd.Wait()
		close(p.exited)
		p.log.changed()
	}()
	t.Cleanup(func() { p.end(t) })
	return p
}

// awaitServing waits until the configuration is in force.
func (p *process) awaitServing(t *testing.T) {
	t.Helper()
	p.awaitLog(t, "serving initial configuration")
}

// awaitLog waits for a line with all of the texts in it, and returns it.
func (p *process) awaitLog(t *testing.T, texts ...string) (line string) {
	t.Helper()
	found := p.log.wait(func(lines []string) bool {
		for _, l := range lines {
			if containsAll(l, texts) {
				line = l
				return true
			}
		}
		return p.hasExited()
	})
	require.True(t, found && line != "", "the log says %q; it has exited: %t\n%s", texts, p.hasExited(), strings.Join(lastOf(p.log.all(), 10), "\n"))
	return line
}

func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// kill is kill -9.
func (p *process) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	p.awaitExit(t)
}

// stop asks for an orderly end, and does not wait for it.
func (p *process) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
}

func (p *process) awaitExit(t *testing.T) {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		require.FailNow(t, "the gateway does not end")
	}
}

// end makes sure that the process is gone, and that the race detector saw nothing.
func (p *process) end(t *testing.T) {
	if !p.hasExited() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		p.awaitExit(t)
	}
	_ = p.life.Close()
	for _, line := range p.log.all() {
		if strings.Contains(line, "DATA RACE") {
			t.Errorf("data race in the gateway:\n%s", strings.Join(p.log.all(), "\n"))
			return
		}
	}
}

// code is the exit code, -1 for a process that was killed.
func (p *process) code() int {
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// logBook is what a process logs, for those who wait for it.
type logBook struct {
	mu    sync.Mutex
	lines []string
	next  chan struct{} // closed when there is more; nil while nobody waits
}

func (b *logBook) read(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			b.mu.Lock()
			b.lines = append(b.lines, strings.TrimSuffix(line, "\n"))
			b.mu.Unlock()
			b.changed()
		}
		if err != nil {
			return
		}
	}
}

func (b *logBook) changed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// wait returns true when the condition holds, and false after a long time.
func (b *logBook) wait(condition func(lines []string) bool) bool {
	timeout := time.After(patience)
	for {
		b.mu.Lock()
		if condition(b.lines) {
			b.mu.Unlock()
			return true
		}
		if b.next == nil {
			b.next = make(chan struct{})
		}
		next := b.next
		b.mu.Unlock()
		select {
		case <-next:
		case <-timeout:
			return false
		}
	}
}

func (b *logBook) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.lines...)
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// until waits for what can only be asked for again and again.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	pgtest.Until(t, what, done)
}
