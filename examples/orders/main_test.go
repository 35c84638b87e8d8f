package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/examples/orders/service"
)

// asProgram makes the test binary run as the program itself, so that no second build is needed.
const asProgram = "ORDERS_RUN_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// start runs the program on a free port and returns the address that it prints.
func start(t *testing.T, data string) (*exec.Cmd, string) {
	t.Helper()
	cmd := command(t, "-listen", "127.0.0.1:0", "-data", data)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })

	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "orders: listening on ")
	require.True(t, ok, line)
	return cmd, url
}

func post(t *testing.T, url, fault string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/orders", strings.NewReader(`{"ref":"K1"}`))
	require.NoError(t, err)
	r.Header.Set("X-Fault", fault)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

func get(t *testing.T, url string, into any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	require.NoError(t, json.NewDecoder(response.Body).Decode(into))
}

func TestCountsSurviveEveryDeath(t *testing.T) {
	data := filepath.Join(t.TempDir(), "made", "orders.jsonl")

	program, url := start(t, data)
	_, err := post(t, url, "")
	require.NoError(t, err)
	_, err = post(t, url, "die")
	require.Error(t, err)
	_ = program.Wait()
	require.Equal(t, diedByFault, program.ProcessState.ExitCode())

	program, url = start(t, data)
	_, err = post(t, url, "die-after")
	require.Error(t, err)
	_ = program.Wait()
	require.Equal(t, diedByFault, program.ProcessState.ExitCode())

	program, url = start(t, data)
	held := make(chan error, 1)
	go func() {
		_, err := post(t, url, "hold")
		held <- err
	}()
	get(t, url+"/faults/waiting", &struct{}{})
	require.NoError(t, program.Process.Kill())
	require.Error(t, <-held)
	_ = program.Wait()

	_, url = start(t, data)
	var stats service.Stats
	get(t, url+"/stats", &stats)
	require.Equal(t, 4, stats.ByReference["K1"])
	require.Equal(t, 2, stats.OrdersByReference["K1"])
}

func TestInterruptEndsTheProgramInPeace(t *testing.T) {
	program, _ := start(t, filepath.Join(t.TempDir(), "orders.jsonl"))
	require.NoError(t, program.Process.Signal(os.Interrupt))
	require.NoError(t, program.Wait())
}

func TestWhatCannotStartSaysWhy(t *testing.T) {
	data := filepath.Join(t.TempDir(), "orders.jsonl")
	start(t, data)
	for text, args := range map[string][]string{
		"another order service has it open": {"-listen", "127.0.0.1:0", "-data", data},
		"flags only":                        {"serve"},
		"listen":                            {"-listen", "nowhere"},
	} {
		out, err := command(t, args...).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), text)
	}
}
