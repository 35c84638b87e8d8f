package caddymodule_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-idempotency/caddy-idempotency/caddymodule"
	"github.com/caddy-idempotency/caddy-idempotency/store/postgres"
)

// section is a part of docs/configuration.md under one heading.
type section struct {
	chapter string // the heading of the second level
	option  string // of the third, if it is an option's
	line    int
	text    string
}

func configurationDocs(t *testing.T) (sections []section) {
	t.Helper()
	content, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	current, fenced := section{line: 1}, false
	for i, line := range strings.Split(string(content), "\n") {
		fenced = fenced != strings.HasPrefix(line, "```")
		chapter, isChapter := strings.CutPrefix(line, "## ")
		option, isOption := strings.CutPrefix(line, "### ")
		if !fenced && (isChapter || isOption) {
			sections = append(sections, current)
			current = section{chapter: current.chapter, option: strings.Trim(option, "`"), line: i + 1}
			if isChapter {
				current.chapter, current.option = strings.ReplaceAll(chapter, "`", ""), ""
			}
			continue
		}
		current.text += line + "\n"
	}
	return append(sections, current)
}

// examples returns the code blocks of a language.
func (s section) examples(language string) (blocks []string) {
	for _, match := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(s.text, -1) {
		blocks = append(blocks, match[1])
	}
	return blocks
}

// chapters of the documentation, by the block that they are about, and how an
// example of an option becomes a Caddyfile.
var chapters = map[string]struct{ block, caddyfile string }{
	"The directive":                    {"idempotency", ":8080 {\n\tidempotency {\n%s\n\t}\n}\n"},
	"Rules of fingerprint":             {"fingerprint", ":8080 {\n\tidempotency {\n\t\tactor shared\n\t\tfingerprint {\n%s\n\t\t}\n\t}\n}\n"},
	"The global option":                {"global option", "{\n\tidempotency {\n%s\n\t}\n}\n"},
	"Options of natural_key":           {"natural_key", ":8080 {\n\tidempotency {\n\t\tactor shared\n\t\tnatural_key requisition_no {\n%s\n\t\t}\n\t}\n}\n"},
	"Options of verify":                {"verify", ":8080 {\n\tidempotency {\n\t\tactor shared\n\t\toperation create-order\n\t\tverify http://orders:8080/orders?client_ref={idempotency.key} {\n%s\n\t\t}\n\t}\n}\n"},
	"The directive idempotency_status": {"idempotency_status", ":8080 {\n\tidempotency_status {\n%s\n\t}\n}\n"},
	"Store postgres":                   {"store postgres", "{\n\tidempotency {\n\t\tstore postgres {\n%s\n\t\t}\n\t}\n}\n"},
}

func TestDocumentationHasEveryOptionOfTheParserAndNoOther(t *testing.T) {
	documented := make(map[string][]string)
	for _, section := range configurationDocs(t) {
		if section.option == "" {
			continue
		}
		block := chapters[section.chapter].block
		documented[block] = append(documented[block], section.option)
		for _, part := range []string{"\nSyntax: `" + section.option, " · Default: ", " · JSON: `"} {
			if !strings.Contains(section.text, part) {
				t.Errorf("docs/configuration.md:%d: %s has no %q", section.line, section.option, part)
			}
		}
		if len(section.examples("caddyfile")) != 1 {
			t.Errorf("docs/configuration.md:%d: %s has not one example", section.line, section.option)
		}
	}
	for block, options := range caddymodule.ConfigOptions() {
		slices.Sort(documented[block])
		if !slices.Equal(documented[block], options) {
			t.Errorf("docs/configuration.md has of %s\n%v\nthe parser knows\n%v", block, documented[block], options)
		}
	}
}

// An example of an option is lines of its block; all others are whole Caddyfiles.
func TestExamplesOfTheDocumentationAdaptAndValidate(t *testing.T) {
	t.Setenv("DATABASE_URL", closedPort)
	setSecrets(t)
	for _, section := range configurationDocs(t) {
		for _, example := range section.examples("caddyfile") {
			if section.option != "" {
				if section.chapter == "The directive" && section.option != "actor" {
					example += "actor shared\n"
				}
				if section.chapter == "Options of verify" && section.option != "exists" {
					example += "exists 200 orders.#>0\n"
				}
				if section.chapter == "The directive idempotency_status" {
					for option, line := range map[string]string{"actor": "actor shared\n", "operation": "operation create-order\n"} {
						if section.option != option {
							example += line
						}
					}
				}
				if section.chapter == "Store postgres" && section.option != "dsn" {
					example += "dsn {env.DATABASE_URL}\n"
				}
				example = fmt.Sprintf(chapters[section.chapter].caddyfile, example)
				if section.option == "store_key" { // which needs the app's secret
					example = "{\n\tidempotency {\n\t\tsecret {env.IDEMPOTENCY_SECRET}\n\t}\n}\n" + example
				}
			}
			result, _, err := adapt(example)
			if err != nil {
				t.Errorf("docs/configuration.md:%d: %v in\n%s", section.line, err, example)
				continue
			}
			if _, err := validate(t, result); err != nil {
				t.Errorf("docs/configuration.md:%d: %v in\n%s", section.line, err, example)
			}
		}
		for _, example := range section.examples("json") {
			if _, err := validate(t, []byte(example)); err != nil {
				t.Errorf("docs/configuration.md:%d: %v in\n%s", section.line, err, example)
			}
		}
	}
}

func TestDocumentationHasEveryJSONName(t *testing.T) {
	text := ""
	for _, section := range configurationDocs(t) {
		text += section.text
	}
	var names []string
	for prefix, module := range map[string]any{
		"": caddymodule.Handler{}, "app.": caddymodule.App{}, "status.": caddymodule.Status{}, "store.": caddymodule.PostgresStore{}, "store. ": caddymodule.SQLiteStore{},
	} {
		names = append(names, jsonNames(strings.TrimSpace(prefix), reflect.TypeOf(module))...)
	}
	for _, name := range names {
		name = strings.TrimPrefix(strings.TrimPrefix(name, "app."), "status.")
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/configuration.md does not have the JSON name `%s`", name)
		}
	}
}

// jsonNames are the names of a module's options, with dots where objects are.
// The members of a list's elements stand alone.
func jsonNames(prefix string, typ reflect.Type) (names []string) {
	for i := range typ.NumField() {
		field := typ.Field(i)
		if field.Type.Kind() == reflect.Pointer {
			field.Type = field.Type.Elem()
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case !field.IsExported() || name == "-":
		case field.Type.Kind() == reflect.Struct:
			names = append(names, jsonNames(prefix+name+".", field.Type)...)
		case field.Type.Kind() == reflect.Slice && field.Type.Elem().Kind() == reflect.Struct:
			names = append(names, prefix+name)
			names = append(names, jsonNames("", field.Type.Elem())...)
		default:
			names = append(names, prefix+name)
		}
	}
	return names
}

func TestDocumentationSaysTheDefaults(t *testing.T) {
	defaults := map[string]any{
		"tenant": caddymodule.DefaultTenant, "key": "header " + caddymodule.DefaultKeyHeader, "max_key_length": caddymodule.DefaultMaxKeyLength,
		"max_request_body": mebibytes(caddymodule.DefaultMaxRequestBody), "max_response_body": mebibytes(caddymodule.DefaultMaxResponseBody),
		"upstream_timeout": caddymodule.DefaultUpstreamTimeout, "wait": caddymodule.DefaultWait,
		"replay_for": fmt.Sprintf("%.0fh", caddymodule.DefaultReplayFor.Hours()), "sweep_every": caddymodule.DefaultSweepEvery,
		"give_up": fmt.Sprintf("%.0fh", caddymodule.DefaultVerifyGiveUp.Hours()), "Options of verify timeout": caddymodule.DefaultVerifyTimeout,
		"status": caddymodule.DefaultVerifyStatus, "Store postgres timeout": postgres.DefaultTimeout, "max_conns": postgres.DefaultMaxConns,
	}
	for _, section := range configurationDocs(t) {
		value, has := defaults[section.option]
		if of, there := defaults[section.chapter+" "+section.option]; there {
			value, has = of, true
		}
		if section.chapter == "The directive idempotency_status" && section.option != "tenant" {
			continue // the key of a request is elsewhere there
		}
		if expected := fmt.Sprintf("Default: `%v` · ", value); has && !strings.Contains(section.text, expected) {
			t.Errorf("docs/configuration.md:%d: %s has no %q", section.line, section.option, expected)
		}
	}
}

func mebibytes(n int) string { return fmt.Sprintf("%dMiB", n>>20) }
