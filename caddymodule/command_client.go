package caddymodule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

// adminClient talks to the admin API of a running Caddy. Caddy's own client makes a
// text of an error, and an exit code is found by its type.
type adminClient struct {
	address, config, adapter string

	network, target string // what is dialled
	origin          string // what the URL and the Origin header begin with
}

func (c *adminClient) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.address, "address", "", "Address of the admin endpoint (default: that of --config, or "+caddy.DefaultAdminListen+")")
	flags.StringVarP(&c.config, "config", "c", "", "Configuration file that says where the admin endpoint is")
	flags.StringVarP(&c.adapter, "adapter", "a", "", "Name of the adapter of the configuration file")
}

// commandTimeout is how long a command waits for its answer.
const commandTimeout = time.Minute

// resolve finds out where the endpoint is, as Caddy's own commands do.
func (c *adminClient) resolve() error {
	address, err := caddycmd.DetermineAdminAPIAddress(c.address, nil, c.config, c.adapter)
	if err != nil {
		return fmt.Errorf("finding the admin endpoint: %w", err)
	}
	address = strings.TrimPrefix(strings.TrimSuffix(address, "/"), "http://")
	parsed, err := caddy.ParseNetworkAddress(address)
	switch {
	case err != nil:
		return fmt.Errorf("address %q: %w: write one such as %s or unix//run/caddy-admin.sock", address, err, caddy.DefaultAdminListen)
	case parsed.IsUnixNetwork():
		path, _, _ := strings.Cut(parsed.Host, "|") // the file's permissions
		c.network, c.target, c.origin = parsed.Network, path, "http://127.0.0.1"
	case parsed.IsFdNetwork() || parsed.PortRangeSize() != 1 || parsed.StartPort == 0:
		return fmt.Errorf("address %q is not one that can be dialled: write one such as %s", address, caddy.DefaultAdminListen)
	default:
		c.network, c.target = parsed.Network, parsed.JoinHostPort(0)
		c.origin = "http://" + c.target
	}
	return nil
}

// call makes one request. The answer of an error comes with it, as it was sent.
func (c *adminClient) call(ctx context.Context, method, uri string, input any) ([]byte, error) {
	if err := c.resolve(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var body io.Reader
	if input != nil {
		encoded, err := json.Marshal(input)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(encoded)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.origin+uri, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if !caddy.IsUnixNetwork(c.network) {
		r.Header.Set("Origin", c.origin)
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, c.network, c.target)
		},
	}}
	response, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%w: is Caddy running there? Write --address as the option admin of its configuration has it", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the answer: %w", err)
	case response.StatusCode != http.StatusOK:
		return answer, answerError(response.StatusCode, answer)
	}
	return answer, nil
}

// answerError makes an error of an answer, whether it is one of this API's or of
// Caddy's own, such as one about the Origin.
func answerError(status int, answer []byte) error {
	var body adminErrorBody
	_ = json.Unmarshal(answer, &body)
	problem, known := adminProblems[body.Type]
	if !known {
		problem = adminProblem{slug: body.Type, status: status, exit: exitFailed}
	}
	if body.Text == "" {
		body.Text = "this Caddy has no such endpoint: is the idempotency module part of it?"
	}
	return &commandError{adminErrorBody: body, status: status, exit: problem.exit}
}

// commandError is an error that the running Caddy answered.
type commandError struct {
	adminErrorBody
	status int
	exit   int
}

func (e *commandError) Error() string { return fmt.Sprintf("%s (HTTP %d)", e.Text, e.status) }

// exitCode of a command that ended with the error.
func exitCode(err error) int {
	var answered *commandError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &answered):
		return answered.exit
	}
	return exitFailed
}
