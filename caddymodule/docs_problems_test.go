package caddymodule

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProblemsPageDescribesEveryProblem compares docs/problems.md with the table in
// problem.go: each type has a section whose anchor is the type's last part, and the
// section has a row for each status, with what a client decides by.
func TestProblemsPageDescribesEveryProblem(t *testing.T) {
	require.Equal(t, problemsOfCode(t), problemsOfPage(t))
	require.True(t, strings.HasSuffix(ProblemBase, "/docs/problems.md#"))
	require.Equal(t, ProblemBase, DefaultPolicy+"#")
}

// described is what the page says of a problem.
type described struct {
	slug      string
	status    int
	retryable bool
	title     string
}

// problemsOfCode reads the table from the source: its rows are variables, and a new
// one must not be forgotten here.
func problemsOfCode(t *testing.T) map[described]bool {
	file, err := parser.ParseFile(token.NewFileSet(), "problem.go", nil, 0)
	require.NoError(t, err)
	problems := map[described]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		row, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if name, ok := row.Type.(*ast.Ident); !ok || name.Name != "problem" {
			return true
		}
		require.GreaterOrEqual(t, len(row.Elts), 4, "a row without names of fields")
		status, err := strconv.Atoi(row.Elts[1].(*ast.BasicLit).Value)
		require.NoError(t, err)
		problems[described{
			slug:      unquote(t, row.Elts[0]),
			status:    status,
			title:     unquote(t, row.Elts[2]),
			retryable: row.Elts[3].(*ast.Ident).Name == "true",
		}] = true
		return true
	})
	require.NotEmpty(t, problems)
	return problems
}

func unquote(t *testing.T, e ast.Expr) string {
	text, err := strconv.Unquote(e.(*ast.BasicLit).Value)
	require.NoError(t, err)
	return text
}

var (
	problemSection = regexp.MustCompile(`(?m)^## (.+)$`)
	problemRow     = regexp.MustCompile(`(?m)^\| (\d{3}) \| (yes|no) \| ([^|]+) \|`)
)

func problemsOfPage(t *testing.T) map[described]bool {
	text, err := os.ReadFile("../docs/problems.md")
	require.NoError(t, err)
	page := string(text)
	problems := map[described]bool{}
	sections := problemSection.FindAllStringSubmatchIndex(page, -1)
	for i, section := range sections {
		end := len(page)
		if i+1 < len(sections) {
			end = sections[i+1][0]
		}
		slug := page[section[2]:section[3]]
		rows := problemRow.FindAllStringSubmatch(page[section[1]:end], -1)
		require.NotEmpty(t, rows, "section %s has no row", slug)
		for _, row := range rows {
			status, err := strconv.Atoi(row[1])
			require.NoError(t, err)
			problems[described{slug: slug, status: status, retryable: row[2] == "yes", title: strings.TrimSpace(row[3])}] = true
		}
	}
	return problems
}
