package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// childPath tells this test binary to be another process that uses the embedded
// store on that path.
const childPath = "IDEMPOTENCY_TEST_CHILD_PATH"

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		child(path)
		return
	}
	os.Exit(m.Run())
}

// child opens the store and writes until it is killed. Each line that it prints
// says what was acknowledged: "claimed K" or "completed K".
func child(path string) {
	e, err := Open(context.Background(), Config{Path: path})
	var inUse *InUseError
	if errors.As(err, &inUse) {
		fmt.Println("in use", inUse.Path)
		return
	}
	must := func(err error) {
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	must(err)
	fmt.Println("open")

	var out sync.Mutex
	say := func(what, key string) {
		out.Lock()
		defer out.Unlock()
		fmt.Println(what, key)
	}
	var clients sync.WaitGroup
	for client := range 8 { // so that commits are shared
		clients.Go(func() {
			for n := 0; ; n++ {
				key := fmt.Sprintf("%d-%d", client, n)
				draft := newDraft(key)
				won, _, err := e.Claim(context.Background(), draft)
				must(err)
				if !won {
					must(errors.New("claim lost"))
				}
				say("claimed", key)
				must(e.Complete(context.Background(), draft.Identity, draft.Token, completion(key)))
				say("completed", key)
			}
		})
	}
	clients.Wait()
}

// process is a child under way.
type process struct {
	*exec.Cmd
	lines *bufio.Reader
}

func startChild(t *testing.T, path string) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &process{Cmd: exec.Command(self)}
	p.Env = append(os.Environ(), childPath+"="+path)
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	p.lines = bufio.NewReader(out)
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// line returns the next line as its two words; io.EOF when there are no more.
func (p *process) line() (what, about string, err error) {
	line, err := p.lines.ReadString('\n')
	if err != nil {
		return "", "", io.EOF // a line without an end was not said
	}
	what, about, _ = strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	return what, about, nil
}

func requireInUse(t *testing.T, path string) {
	t.Helper()
	e, err := Open(t.Context(), Config{Path: path})
	require.Nil(t, e)
	var inUse *InUseError
	require.ErrorAs(t, err, &inUse)
	require.Equal(t, filepath.Base(path), filepath.Base(inUse.Path))
	require.ErrorContains(t, err, "is in use")
}

func TestSecondEngineOfTheProcessIsRefused(t *testing.T) {
	path := databasePath(t)
	e, err := Open(t.Context(), Config{Path: path})
	require.NoError(t, err)
	draft := newDraft("K1")
	claim(t, e, draft)

	requireInUse(t, path)

	// The refusal has not harmed the first: its locks and its records are there.
	require.NoError(t, e.Complete(t.Context(), draft.Identity, draft.Token, completion("one")))
	requireInUse(t, path)
	require.NoError(t, e.Close())
	require.Equal(t, store.Completed, read(t, open(t, Config{Path: path}), draft.Identity).State)
}

func TestSecondEngineIsRefusedOnEveryWayToTheFile(t *testing.T) {
	path := databasePath(t)
	open(t, Config{Path: path})

	elsewhere := t.TempDir()
	linkToFile, linkToFolder := filepath.Join(elsewhere, "file.db"), filepath.Join(elsewhere, "folder")
	require.NoError(t, os.Symlink(path, linkToFile))
	require.NoError(t, os.Symlink(filepath.Dir(path), linkToFolder))
	t.Chdir(filepath.Dir(path))

	for _, way := range []string{linkToFolder + "/idempotency.db", "idempotency.db", "../data/idempotency.db"} {
		requireInUse(t, way)
	}
	_, err := Open(t.Context(), Config{Path: linkToFile})
	require.ErrorAs(t, err, new(*InUseError))
}

func TestSecondProcessIsRefused(t *testing.T) {
	path := databasePath(t)
	open(t, Config{Path: path})

	second := startChild(t, path)
	what, about, err := second.line()
	require.NoError(t, err)
	require.Equal(t, "in use", what+" "+strings.Fields(about)[0])
	require.Contains(t, about, "idempotency.db")
	require.NoError(t, second.Wait())
}

func TestKilledProcessLeavesTheFileFreeAndWhatItAcknowledged(t *testing.T) {
	path := databasePath(t)
	first := startChild(t, path)
	what, _, err := first.line()
	require.NoError(t, err)
	require.Equal(t, "open", what)
	requireInUse(t, path)

	acknowledged := make(map[string]store.State)
	for lines := 0; ; lines++ {
		what, key, err := first.line()
		if err == io.EOF {
			break
		}
		switch what {
		case "claimed":
			acknowledged[key] = store.Executing
		case "completed":
			acknowledged[key] = store.Completed
		default:
			t.Fatal(what, key)
		}
		if lines == 500 { // in the midst of it; what was said before is read to its end
			require.NoError(t, first.Process.Kill())
		}
	}
	require.Error(t, first.Wait(), "killed")

	e := open(t, Config{Path: path})
	for key, state := range acknowledged {
		record := read(t, e, newDraft(key).Identity)
		if state == store.Executing && record.State == store.Completed {
			continue // done, and killed before it was said
		}
		require.Equal(t, state, record.State, key)
		if state == store.Completed {
			require.Equal(t, key, string(record.Response.Body))
		}
	}
	require.NotEmpty(t, acknowledged)
}
