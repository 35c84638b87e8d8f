package caddymodule_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/caddy-idempotency/caddy-idempotency/caddymodule"
)

// updateConfig rewrites what testdata expects of the configuration by what there
// is, to be read in the diff.
var updateConfig = flag.Bool("update-config", false, "rewrite the expectations in testdata/adapt and testdata/refused")

// adapt makes JSON of a Caddyfile.
func adapt(input string) ([]byte, []caddyconfig.Warning, error) {
	return caddyconfig.GetAdapter("caddyfile").Adapt([]byte(input), map[string]any{"filename": "Caddyfile"})
}

// golden is one file of testdata/adapt, in the format of Caddy's own adapt tests.
type golden struct{ path, caddyfile, json string }

const goldenDivider = "----------\n"

func goldens(t *testing.T) (all []golden) {
	t.Helper()
	paths, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(paths) == 0 {
		t.Fatal("no files in testdata/adapt", err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		input, expected, _ := strings.Cut(string(content), goldenDivider)
		all = append(all, golden{path, input, expected})
	}
	return all
}

func TestEveryOptionAdaptsToItsJSON(t *testing.T) {
	for _, golden := range goldens(t) {
		t.Run(filepath.Base(golden.path), func(t *testing.T) {
			result, warnings, err := adapt(golden.caddyfile)
			if err != nil {
				t.Fatal(err)
			}
			for _, warning := range warnings {
				t.Errorf("warning: %s", warning)
			}
			var indented bytes.Buffer
			if err := json.Indent(&indented, result, "", "\t"); err != nil {
				t.Fatal(err)
			}
			indented.WriteByte('\n')
			if *updateConfig {
				content := golden.caddyfile + goldenDivider + indented.String()
				if err := os.WriteFile(golden.path, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if indented.String() != golden.json {
				t.Errorf("adapted to\n%s\nexpected\n%s", indented.String(), golden.json)
			}
		})
	}
}

// What the Caddyfile means must also be what a module reads back, and be accepted.
func TestEveryAdaptedOptionProvisions(t *testing.T) {
	t.Setenv("DATABASE_URL", closedPort)
	setSecrets(t)
	for _, golden := range goldens(t) {
		t.Run(filepath.Base(golden.path), func(t *testing.T) {
			result, _, err := adapt(golden.caddyfile)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := validate(t, result); err != nil {
				t.Error(err)
			}
		})
	}
}

// setSecrets sets the environment of what is written in the goldens and examples.
func setSecrets(t *testing.T) {
	t.Helper()
	t.Setenv("IDEMPOTENCY_SECRET", strings.Repeat("s", 32))
	t.Setenv("IDEMPOTENCY_KEY", base64.StdEncoding.EncodeToString(make([]byte, 32)))
	t.Setenv("VERIFY_TOKEN", "token")
}

func TestEveryOptionHasAGoldenFile(t *testing.T) {
	used := make(map[string]bool)
	for _, golden := range goldens(t) {
		tokens, err := caddyfile.Tokenize([]byte(golden.caddyfile), golden.path)
		if err != nil {
			t.Fatal(err)
		}
		for i, token := range tokens {
			if i == 0 || token.Line != tokens[i-1].Line {
				used[token.Text] = true
			}
		}
	}
	for block, options := range caddymodule.ConfigOptions() {
		for _, option := range options {
			if !used[option] {
				t.Errorf("option %s of %s is in no file of testdata/adapt", option, block)
			}
		}
	}
}

// Rights are checked again on every replay, and what is stored is not compressed:
// the handler comes after authentication and after encode, and before the proxy.
func TestHandlerStandsBetweenAuthenticationAndProxy(t *testing.T) {
	result, _, err := adapt(`:8080 {
	reverse_proxy localhost:9000
	idempotency {
		actor {http.auth.user.id}
	}
	templates
	request_header X-A b
	encode
	forward_auth localhost:9001 {
		uri /auth
	}
	basic_auth {
		bob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG
	}
	handle {
		respond hi
	}
}
`)
	if err != nil {
		t.Fatal(err)
	}
	expected := []string{`"authentication"`, `"rewrite"`, `"encode"`, `"idempotency"`, `"templates"`, `"static_response"`, `localhost:9000`}
	rest := result
	for _, handler := range expected {
		_, after, found := bytes.Cut(rest, []byte(handler))
		if !found {
			t.Fatalf("%s is not where it is expected, the order being %v:\n%s", handler, expected, result)
		}
		rest = after
	}
}
