package pgtest_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/internal/pgtest"
)

// The test runs itself in a second process, which this variable tells apart.
const doomed = "PGTEST_DOOMED"

func TestServerDoesNotOutliveAKilledTestProcess(t *testing.T) {
	if os.Getenv(doomed) != "" {
		db := pgtest.New(t)
		fmt.Println("data:" + pgtest.Get[string](t, db, `SHOW data_directory`))
		select {} // until it is killed
	}

	process := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	process.Env = append(os.Environ(), doomed+"=1", "IDEMPOTENCY_TEST_DSN=")
	process.Stderr = os.Stderr
	out, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	var data string
	for lines := bufio.NewScanner(out); data == "" && lines.Scan(); {
		_, data, _ = strings.Cut(lines.Text(), "data:")
	}
	require.DirExists(t, data)

	require.NoError(t, process.Process.Kill())
	_ = process.Wait() // "signal: killed"

	// Its supervisor removes the directory after the server has ended.
	pgtest.Until(t, "the server's directory is gone", func() bool {
		_, err := os.Stat(data)
		return os.IsNotExist(err)
	})
}
