package caddymodule_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// refusedCase is one case of a file in testdata/refused: what is written, and what
// the answer is. In the file, the lines of the answer begin with "! "; a warning,
// with which the configuration works, begins with "~ ".
type refusedCase struct {
	line     int
	comments []string // before it
	input    []string
	expected []string // with their marks
}

func (c refusedCase) name() string { return fmt.Sprintf("line_%d", c.line) }

func readRefused(t *testing.T, name string) (cases []refusedCase) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata/refused", name))
	if err != nil {
		t.Fatal(err)
	}
	current := refusedCase{}
	for i, line := range strings.Split(string(content)+"\n", "\n") {
		switch {
		case strings.HasPrefix(line, "#") || line == "" && current.input == nil:
			current.comments = append(current.comments, line)
		case strings.HasPrefix(line, "! ") || strings.HasPrefix(line, "~ "):
			current.expected = append(current.expected, line)
		case line != "":
			if current.input == nil {
				current.line = i + 1
			}
			current.input = append(current.input, line)
		default:
			cases = append(cases, current)
			current = refusedCase{comments: []string{line}}
		}
	}
	return cases
}

// refuses checks each case of a file against what answer says of it.
func refuses(t *testing.T, name string, answer func(t *testing.T, input string) []string) {
	t.Helper()
	cases := readRefused(t, name)
	var rewritten []string
	for _, c := range cases {
		rewritten = append(rewritten, c.comments...)
		rewritten = append(rewritten, c.input...)
		t.Run(c.name(), func(t *testing.T) {
			got := answer(t, strings.Join(c.input, "\n"))
			rewritten = append(rewritten, got...)
			if *updateConfig {
				return
			}
			if expected := strings.Join(c.expected, "\n"); strings.Join(got, "\n") != expected {
				t.Errorf("\n%s\nis answered with\n%s\nexpected\n%s", strings.Join(c.input, "\n"), strings.Join(got, "\n"), expected)
			}
		})
	}
	if *updateConfig {
		if err := os.WriteFile(filepath.Join("testdata/refused", name), []byte(strings.Join(rewritten, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// parserAnswer is the error of the adapter without Caddy's own introduction.
func parserAnswer(input string) []string {
	_, _, err := adapt(input)
	if err == nil {
		return []string{"! nothing, it was accepted"}
	}
	text := strings.TrimPrefix(err.Error(), "parsing caddyfile tokens for 'idempotency': ")
	return []string{"! " + strings.TrimPrefix(text, "parsing caddyfile tokens for 'idempotency_status': ")}
}

func TestParserRefusesWrongOptionsOfARoute(t *testing.T) {
	refuses(t, "route.txt", func(_ *testing.T, lines string) []string {
		return parserAnswer(":8080 {\n\tidempotency {\n\t\tactor shared\n" + lines + "\n\t}\n}\n") // from line 4 on
	})
}

func TestParserRefusesWrongOptionsOfAStatus(t *testing.T) {
	refuses(t, "status.txt", func(_ *testing.T, lines string) []string {
		return parserAnswer(":8080 {\n\tidempotency_status {\n" + lines + "\n\t}\n}\n") // from line 3 on
	})
}

func TestParserRefusesWrongGlobalOptions(t *testing.T) {
	refuses(t, "global.txt", func(_ *testing.T, lines string) []string {
		return parserAnswer("{\n\tidempotency {\n" + lines + "\n\t}\n}\n:8080\n") // from line 3 on
	})
}

func TestParserRefusesWrongCaddyfiles(t *testing.T) {
	refuses(t, "caddyfile.txt", func(_ *testing.T, input string) []string { return parserAnswer(input + "\n") })
}

// provisionAnswer is the error of `caddy validate` without the path of modules
// that leads to it, or the warnings in the log.
func provisionAnswer(t *testing.T, config []byte) (answer []string) {
	warnings, err := validate(t, config)
	for _, warning := range warnings {
		answer = append(answer, "~ "+warning)
	}
	if err == nil {
		return answer
	}
	text := err.Error()
	for _, introduction := range []string{"provision http.handlers.idempotency: ", "provision http.handlers.idempotency_status: ", "provision idempotency: ", "provision idempotency.stores.postgres: ", "provision idempotency.stores.sqlite: ", "decoding module config: http.handlers.idempotency: ", "decoding module config: idempotency: ", "loading store: "} {
		if i := strings.LastIndex(text, introduction); i >= 0 {
			text = text[i+len(introduction):]
		}
	}
	return append(answer, "! "+text)
}

func TestProvisionRefusesWrongJSONOfAHandler(t *testing.T) {
	t.Setenv("IDEMPOTENCY_TEST_EMPTY", "")
	t.Setenv("IDEMPOTENCY_TEST_SET", "acme")
	refuses(t, "handler_json.txt", func(t *testing.T, handler string) []string {
		return provisionAnswer(t, withHandler(`{}`, handler))
	})
}

func TestProvisionRefusesWrongJSONOfAStatus(t *testing.T) {
	refuses(t, "status_json.txt", func(t *testing.T, status string) []string {
		config := withHandler(`{}`, status)
		return provisionAnswer(t, []byte(strings.Replace(string(config), `"handler": "idempotency"`, `"handler": "idempotency_status"`, 1)))
	})
}

func TestProvisionRefusesWrongJSONOfTheApp(t *testing.T) {
	t.Setenv("IDEMPOTENCY_TEST_EMPTY", "")
	refuses(t, "app_json.txt", func(t *testing.T, app string) []string {
		return provisionAnswer(t, withHandler(app, `{"actor": "shared"}`))
	})
}
