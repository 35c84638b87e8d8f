package caddymodule_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// Caddy's website shows these comments as the documentation of the JSON: each says
// what an option does, and what it is if it is left out.
func TestEveryFieldOfEveryModuleSaysItsDefault(t *testing.T) {
	options := 0
	for file, types := range map[string][]string{
		"handler.go": {"Handler"}, "key.go": {"KeySource"}, "app.go": {"App"}, "natural.go": {"NaturalKey"}, "verifier.go": {"Verifier", "Expectation"},
		"secret.go": {"EncryptKey"}, "status.go": {"Status"}, "stores.go": {"PostgresStore", "SQLiteStore"},
	} {
		fields := make(map[string]*ast.StructType)
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			if spec, ok := node.(*ast.TypeSpec); ok {
				fields[spec.Name.Name], _ = spec.Type.(*ast.StructType)
			}
			return true
		})
		for _, name := range types {
			for _, field := range fields[name].Fields.List {
				if field.Tag == nil { // not an option
					continue
				}
				options++
				comment := field.Doc.Text()
				if !strings.Contains(comment, "Default: ") && !strings.Contains(comment, "Required") {
					t.Errorf("%s: %s.%s does not say its default, or that it is required:\n%s", file, name, field.Names[0], comment)
				}
			}
		}
	}
	if options < 20 {
		t.Errorf("only %d options were found", options)
	}
}
