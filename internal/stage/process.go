package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Process is a program that runs, with what it has written.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	out   output
}

// output is written by the process and read by the stage.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func start(dir string, env []string, program string, args ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	return p, nil
}

// Log is what the process has written until now.
func (p *Process) Log() string { return p.out.String() }

// Kill ends the process as kill -9 does, and returns when it is gone.
func (p *Process) Kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// startTimeout is long because a loaded machine may be slow; a process that cannot
// start ends, which is noticed at once.
const startTimeout = time.Minute

// until asks again and again until ready says yes, the process is gone, or it
// takes too long.
func (p *Process) until(ctx context.Context, what string, ready func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !ready(ctx) {
		select {
		case <-p.ended:
			return fmt.Errorf("%s: the process has ended:\n%s", what, p.Log())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w\n%s", what, context.Cause(ctx), p.Log())
		case <-time.After(askAgain):
		}
	}
	return nil
}

const askAgain = 25 * time.Millisecond

// Until asks again and again until the answer is yes, or patience is over.
func Until(ctx context.Context, patience time.Duration, what string, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		yes, err := ask(ctx)
		if yes && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s, for %s in vain: %w", what, patience, errors.Join(err, context.Cause(ctx)))
		case <-time.After(askAgain):
		}
	}
}
