package caddymodule_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// What operators send and get, through the admin endpoint of a gateway or through
// the command.

// fields are members of a JSON object.
type fields map[string]any

// named addresses a record of the usual scope, and adds what is decided about it.
func named(key string, more fields) fields {
	f := fields{"actor": "shared", "operation": "create-order", "key": key}
	for name, value := range more {
		f[name] = value
	}
	return f
}

// because is who decides, and why.
func because(reason string, more fields) fields {
	f := fields{"by": "olga", "reason": reason}
	for name, value := range more {
		f[name] = value
	}
	return f
}

// seen is a record as it is listed.
type seen struct {
	Tenant, Actor, Operation, Key string
	KeyDigest                     string `json:"key_digest"`
	Attempt                       string
	State                         string
	Age                           int `json:"age_seconds"`
	Status                        int
	Resource, Reason              string
}

// decided is an entry of the audit.
type decided struct {
	By, From, To string
	Status       int
	Reason       string
}

// ruling is what the admin API answers, all of it together.
type ruling struct {
	t      *testing.T
	status int
	header http.Header
	raw    []byte

	Type         string
	Error        string
	Done         string
	Records      []seen
	Next         string
	Record       *seen
	ResponseKept bool `json:"response_kept"`
	Response     *struct {
		Header     http.Header
		Body       string
		BodyBase64 []byte `json:"body_base64"`
	}
	Audit []struct {
		decided
		At string
	}
	OldestUnknown int            `json:"oldest_unknown_seconds"`
	Stats         map[string]int `json:"-"`
}

// audit without the times.
func (r ruling) audit() (all []decided) {
	for _, entry := range r.Audit {
		require.NotEmpty(r.t, entry.At)
		all = append(all, entry.decided)
	}
	return all
}

// told is status and type of an error.
func (r ruling) told() string { return fmt.Sprint(r.status, " ", r.Type) }

func (r ruling) ok() ruling {
	r.t.Helper()
	require.Equal(r.t, 200, r.status, "%s", r.raw)
	return r
}

// consult sends a request to the admin endpoint. A body that is no text is sent as
// JSON.
func (g *gateway) consult(method, path string, body any, changes ...with) ruling {
	g.t.Helper()
	return g.consultLater(method, path, body, changes...)()
}

// consultLater does so in the background. The function returned waits for the answer,
// and checks it: it is for the test's own goroutine.
func (g *gateway) consultLater(method, path string, body any, changes ...with) func() ruling {
	g.t.Helper()
	var content io.Reader
	if body != nil {
		text, isText := body.(string)
		if !isText {
			encoded, err := json.Marshal(body)
			require.NoError(g.t, err)
			text = string(encoded)
		}
		content = strings.NewReader(text)
	}
	r, err := http.NewRequestWithContext(g.t.Context(), method, "http://"+g.admin+path, content)
	require.NoError(g.t, err)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, change := range changes {
		change(r)
	}
	a := ruling{t: g.t}
	answered := make(chan error, 1)
	go func() {
		response, err := g.client.Do(r)
		if err == nil {
			defer response.Body.Close()
			a.status, a.header = response.StatusCode, response.Header
			a.raw, err = io.ReadAll(response.Body)
		}
		g.story.tell("operator: %s %s %v: %d %s %v", method, path, body, a.status, short(a.raw), err)
		answered <- err
	}()
	return sync.OnceValue(func() ruling {
		require.NoError(g.t, <-answered)
		a.read()
		return a
	})
}

// read takes apart what is JSON. The records of stats are counts, not a list.
func (r *ruling) read() {
	r.t.Helper()
	var counts struct {
		Records json.RawMessage
	}
	if json.Unmarshal(r.raw, &counts) == nil && bytes.HasPrefix(counts.Records, []byte("{")) {
		require.NoError(r.t, json.Unmarshal(counts.Records, &r.Stats))
		r.raw = bytes.Replace(r.raw, counts.Records, []byte("null"), 1)
	}
	if bytes.HasPrefix(r.raw, []byte("{")) {
		require.NoError(r.t, json.Unmarshal(r.raw, r), "%s", r.raw)
	}
}

func (g *gateway) show(key string, more fields) ruling {
	g.t.Helper()
	return g.consult("POST", "/idempotency/show", named(key, more))
}

func (g *gateway) resolve(key string, more fields) ruling {
	g.t.Helper()
	return g.consult("POST", "/idempotency/resolve", named(key, more))
}

func (g *gateway) release(key string, more fields) ruling {
	g.t.Helper()
	return g.consult("POST", "/idempotency/release", named(key, more))
}

func (g *gateway) list(query string) ruling {
	g.t.Helper()
	return g.consult("GET", "/idempotency/records?"+query, nil)
}

// keys of a list.
func (r ruling) keys() (keys []string) {
	for _, record := range r.Records {
		keys = append(keys, record.Key)
	}
	return keys
}

// printed is what a command left behind.
type printed struct {
	ruling
	code     int
	out, err string
}

// command runs `caddy idempotency` against the gateway.
func (g *gateway) command(args ...string) printed {
	g.t.Helper()
	return g.commandAt(g.admin, args...)
}

func (g *gateway) commandAt(address string, args ...string) printed {
	g.t.Helper()
	path, err := program()
	require.NoError(g.t, err)
	all := append([]string{"idempotency"}, args...)
	if address != "" {
		all = append(all, "--address", address)
	}
	cmd := exec.CommandContext(g.t.Context(), path, all...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), "HOME="+g.dir, "XDG_DATA_HOME="+g.dir, "XDG_CONFIG_HOME="+g.dir)
	life, err := cmd.StdinPipe() // the program ends when this does
	require.NoError(g.t, err)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(g.t, cmd.Start())
	err = cmd.Wait()
	_ = life.Close()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(g.t, err)
	}
	p := printed{ruling: ruling{t: g.t, raw: out.Bytes()}, code: cmd.ProcessState.ExitCode(), out: out.String(), err: errs.String()}
	g.story.tell("command: %q: exit %d\n%s%s", args, p.code, p.out, p.err)
	p.read()
	return p
}

// asArgs addresses a record of the usual scope on the command line.
func asArgs(key string) []string {
	return []string{"--actor", "shared", "--operation", "create-order", "--key", key}
}

func (g *gateway) commandAbout(name, key string, args ...string) printed {
	g.t.Helper()
	return g.command(append(append([]string{name}, asArgs(key)...), args...)...)
}

// hasUnknown puts a record into the store whose outcome has been unknown for so many
// seconds, without any request. Further columns have SQL expressions.
func (s *testStore) hasUnknown(t *testing.T, key string, seconds int) {
	t.Helper()
	s.hasUnknownOf(t, "default", "create-order", key, seconds)
}

func (s *testStore) hasUnknownOf(t *testing.T, tenant, operation, key string, seconds int) {
	t.Helper()
	const columns = `tenant, actor, operation, key, state, claim_token, fingerprint_algorithm, fingerprint_version,
		fingerprint, claimed_at, lease_until, settled_at, unknown_since, reason`
	if s.postgres != nil {
		s.exec(t, `INSERT INTO idempotency_records (`+columns+`)
			SELECT $1, 'shared', $2, $3, 'unknown', gen_random_uuid(), 1, '', decode(repeat('00', 32), 'hex'),
				now() - ($4 + 60) * interval '1 second', then_, then_, then_, 'lease over'
			FROM (SELECT now() - $4::int * interval '1 second' AS then_) AS t`, tenant, operation, key, seconds)
		return
	}
	s.exec(t, `INSERT INTO idempotency_records (`+columns+`)
		SELECT ?1, 'shared', ?2, ?3, 'unknown', randomblob(16), 1, '', zeroblob(32),
			then_ - 60000, then_, then_, then_, 'lease over'
		FROM (SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) - ?4 * 1000 AS then_)`, tenant, operation, key, seconds)
}
