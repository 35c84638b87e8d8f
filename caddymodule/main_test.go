package caddymodule_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
)

// The stories of this package are told through a real Caddy: every gateway is a
// process of its own, on a store of its own, in front of an upstream of its own.
//
// One file says how each of these is started and asked: process_test.go the
// process, gateway_test.go its configuration, client_test.go what is sent and what
// comes back, store_test.go the records, upstream_test.go what was executed,
// story_test.go what is printed when a test fails. The others tell stories.

// storiesPerCore at once: most of a story's time is spent waiting.
const storiesPerCore = 3

func TestMain(m *testing.M) {
	flag.Parse()
	if !isSet("test.parallel") {
		_ = flag.Set("test.parallel", strconv.Itoa(storiesPerCore*runtime.GOMAXPROCS(0)))
	}
	code := m.Run()
	if dir := builtIn; dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

var builtIn string // directory of the program; "" until it is built

// program builds the gateway's program, once, and returns its path.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "idempotency-gateway-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	path := filepath.Join(dir, "testcaddy")
	args := []string{"build", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "./internal/testcaddy")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the gateway: %w\n%s", err, out)
	}
	return path, nil
})
