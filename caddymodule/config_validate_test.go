package caddymodule_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// closedPort is a database that nobody serves: port 1 is privileged and reserved.
const closedPort = "postgres://nobody:nothing@127.0.0.1:1/none"

// validate does what `caddy validate` does, with all of Caddy's folders in a new
// one of the test's. It returns the warnings of this module.
func validate(t *testing.T, config []byte) (warnings []string, err error) {
	t.Helper()
	home := t.TempDir()
	for _, variable := range []string{"HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"} {
		t.Setenv(variable, home)
	}
	var cfg *caddy.Config
	if err := caddy.StrictUnmarshalJSON(config, &cfg); err != nil {
		t.Fatalf("%v in %s", err, config)
	}
	log := filepath.Join(t.TempDir(), "log")
	writer, err := json.Marshal(map[string]any{"output": "file", "filename": log})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logging = &caddy.Logging{Logs: map[string]*caddy.CustomLog{
		"default": {BaseLog: caddy.BaseLog{WriterRaw: writer, Level: "WARN"}},
	}}
	err = caddy.Validate(cfg)
	if left := filesOfStore(t, home); len(left) > 0 {
		t.Errorf("validate left files behind: %v", left)
	}
	return moduleWarnings(t, log), err
}

// filesOfStore lists the files that a store makes.
func filesOfStore(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && (strings.Contains(path, "idempotency") || strings.Contains(path, ".db")) {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func moduleWarnings(t *testing.T, log string) (warnings []string) {
	t.Helper()
	content, err := os.ReadFile(log)
	if err != nil {
		return nil // there was nothing to log
	}
	for line := range strings.Lines(string(content)) {
		var entry struct{ Logger, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v in log line %s", err, line)
		}
		if strings.Contains(entry.Logger, "idempotency") {
			warnings = append(warnings, entry.Msg)
		}
	}
	return warnings
}

// Every Caddyfile of the project is one that a reader may copy.
func TestEveryExampleIsFormattedAdaptsAndValidates(t *testing.T) {
	t.Setenv("DATABASE_URL", closedPort)
	t.Setenv("IDEMPOTENCY_STORE", "postgres "+closedPort)
	found := 0
	err := filepath.WalkDir("..", func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := len(entry.Name()) > 2 && strings.HasPrefix(entry.Name(), ".")
		switch {
		case entry.IsDir() && (hidden || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || !isCaddyfile(entry.Name()):
			return nil
		}
		found++
		t.Run(path, func(t *testing.T) { checkExample(t, path) })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Error("there is no Caddyfile in the project")
	}
}

func isCaddyfile(name string) bool {
	return strings.HasPrefix(name, "Caddyfile") || strings.HasSuffix(name, ".caddyfile")
}

func checkExample(t *testing.T, path string) {
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if formatted := caddyfile.Format(content); string(formatted) != string(content) {
		t.Errorf("caddy fmt --overwrite would make it\n%s", formatted)
	}
	t.Chdir(filepath.Dir(path)) // for imports and files
	result, warnings, err := adapt(string(content))
	if err != nil {
		t.Fatal(err)
	}
	for _, warning := range warnings {
		t.Errorf("warning: %s", warning)
	}
	if _, err := validate(t, result); err != nil {
		t.Error(err)
	}
}

// A default store is SQLite's file, which only a start makes.
func TestValidateNeedsNoDatabaseAndMakesNone(t *testing.T) {
	for name, store := range map[string]string{
		"default":  ``,
		"path":     `"store": {"engine": "sqlite", "path": "` + filepath.Join(t.TempDir(), "new", "idempotency.db") + `"}`,
		"postgres": `"store": {"engine": "postgres", "dsn": "` + closedPort + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := validate(t, withHandler(`{`+store+`}`, `{"actor": "shared"}`)); err != nil {
				t.Error(err)
			}
		})
	}
}

// withHandler is a configuration of one route, by the JSON of app and handler.
func withHandler(app, handler string) []byte {
	handler = strings.Replace(`{"handler": "idempotency", `+strings.TrimPrefix(handler, "{"), ", }", "}", 1)
	return []byte(`{"admin": {"disabled": true}, "apps": {"idempotency": ` + app +
		`, "http": {"servers": {"srv0": {"listen": ["127.0.0.1:0"], "routes": [{"handle": [` + handler + `]}]}}}}}`)
}
