package canonical

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRulesThatCannotWorkAreRefused(t *testing.T) {
	def := func(path, value string) []Default { return []Default{{Path: path, Value: json.RawMessage(value)}} }
	for _, v := range []struct {
		name   string
		rules  Rules
		rule   string
		reason string
	}{
		{"empty path", Rules{Exclude: []string{""}}, "exclude", "empty"},
		{"missing name", Rules{Exclude: []string{"a..b"}}, "exclude", "between two dots"},
		{"dot at the end", Rules{Include: []string{"a."}}, "include", "between two dots"},
		{"open escape", Rules{Sets: []string{`a\`}}, "set", "backslash"},
		{"wildcard", Rules{Exclude: []string{"item*.note"}}, "exclude", "wildcards"},
		{"one character", Rules{Exclude: []string{"item?"}}, "exclude", "wildcards"},
		{"pipe", Rules{Exclude: []string{"a|b"}}, "exclude", "pipes"},
		{"query", Rules{Exclude: []string{`items.#(sku=="1").note`}}, "exclude", "queries"},
		{"modifier", Rules{Include: []string{"@this.a"}}, "include", "modifiers"},
		{"multipath", Rules{Include: []string{"{a,b}"}}, "include", "multipaths"},
		{"literal", Rules{Include: []string{"a.!1"}}, "include", "literals"},
		{"every element excluded", Rules{Exclude: []string{"items.#"}}, "exclude", `ends in "#"`},
		{"twice", Rules{Exclude: []string{"a", "a"}}, "exclude", "twice"},
		{"deeper than any body", Rules{Exclude: []string{"a.b.c"}, MaxDepth: 2}, "exclude", "deeper than 2"},
		{"default of an element", Rules{Defaults: def("items.#", "1")}, "default", `ends in "#"`},
		{"default is no JSON", Rules{Defaults: def("a", "CNY")}, "default", "not JSON"},
		{"default is missing", Rules{Defaults: def("a", "")}, "default", "not JSON"},
		{"default twice", Rules{Defaults: append(def("a", "1"), def("a", "2")...)}, "default", "twice"},
		{"default under an exclude", Rules{Exclude: []string{"a"}, Defaults: def("a.b", "1")}, "default", `exclude "a"`},
		{"default under an exclude of all", Rules{Exclude: []string{"a.#.b"}, Defaults: def("a.0.b", "1")}, "default", `exclude "a.#.b"`},
		{"set without include", Rules{Include: []string{"a"}, Sets: []string{"b"}}, "set", "no include"},
		{"money without include", Rules{Include: []string{"amount"}, Money: []Money{{"amount", "currency"}}}, "money", "no include"},
		{"money excluded", Rules{Exclude: []string{"amount"}, Money: []Money{{"amount", "currency"}}}, "money", "exclude"},
		{"currency excluded", Rules{Exclude: []string{"currency"}, Money: []Money{{"amount", "currency"}}}, "money", "exclude"},
		{"many currencies", Rules{Money: []Money{{"amount", "items.#.currency"}}}, "money", "many currencies"},
		{"one value for both", Rules{Money: []Money{{"amount", "amount"}}}, "money", "not two values"},
		{"currency within the amount", Rules{Money: []Money{{"amount", "amount.currency"}}}, "money", "not two values"},
		{"currency is empty", Rules{Money: []Money{{"amount", ""}}}, "money", "empty"},
		{"amount is a set", Rules{Money: []Money{{"a", "c"}}, Sets: []string{"a"}}, "money", "an array"},
		{"amount has members", Rules{Money: []Money{{"a", "c"}}, Exclude: []string{"a.b"}}, "money", "an object"},
		{"currency has members", Rules{Money: []Money{{"a", "c"}}, Exclude: []string{"c.b"}}, "money", "an object"},
		{"array and object", Rules{Exclude: []string{"items.#.a", "items.b"}}, "exclude", "an array"},
		{"set and object", Rules{Sets: []string{"tags"}, Exclude: []string{"tags.a"}}, "set", "an object"},
		{"header is no name", Rules{Headers: []string{"Prefer:"}}, "header", "not a header's name"},
		{"header counts already", Rules{Headers: []string{"content-type"}}, "header", "already"},
		{"query off and named", Rules{Query: Query{Off: true, Only: []string{"a"}}}, "query", "at once"},
		{"query without a name", Rules{Query: Query{Only: []string{""}}}, "query", "empty"},
		{"depth", Rules{MaxDepth: -1}, "max_depth", "out of range"},
		{"depth beyond all", Rules{MaxDepth: 10_001}, "max_depth", "out of range"},
		{"size", Rules{MaxBody: 1<<30 + 1}, "max_body", "out of range"},
	} {
		t.Run(v.name, func(t *testing.T) {
			_, err := Compile(v.rules)
			var refusal *RuleError
			require.True(t, errors.As(err, &refusal), "%v", err)
			require.Equal(t, v.rule, refusal.Rule)
			require.Contains(t, refusal.Reason, v.reason)
			require.NotEmpty(t, refusal.Help)
			t.Log(err)
		})
	}
}

func TestRulesThatGoTogether(t *testing.T) {
	for name, r := range map[string]Rules{
		"include below a set":       {Sets: []string{"items"}, Include: []string{"items.#.sku"}},
		"exclude below an include":  {Include: []string{"a"}, Exclude: []string{"a.b"}},
		"a set of sets":             {Sets: []string{"m", "m.#"}},
		"one element and all":       {Exclude: []string{"items.0.note", "items.#.note"}},
		"two amounts, one currency": {Money: []Money{{"a", "c"}, {"items.#.a", "c"}}},
		"an array at the root":      {Exclude: []string{"#.note"}, Sets: []string{"#.tags"}},
		"literal names":             {Exclude: []string{`a\.b`, `\#`, `\*`, `\@x`, `a@b`, `a#`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Compile(r)
			require.NoError(t, err)
		})
	}
}

func TestPathOfAnErrorIsAPath(t *testing.T) {
	for _, name := range []string{"a", "#", "a.b", `a\b`, "*", "@x", "é", "a|b", "(", "x#"} {
		segs, err := parsePath("exclude", escapeSegment(name))
		require.NoError(t, err, name)
		require.Equal(t, []segment{{name: name}}, segs)
	}
}

func TestErrorsShowNamesAndNeverValues(t *testing.T) {
	p := mustCompile(t, Rules{Money: []Money{{"secret.amount", "secret.currency"}}})
	for _, body := range []string{
		`{"secret":{"amount":"hunter2","currency":"CNY"}}`, `{"secret":{"amount":1,"currency":"hunter2"}}`,
		`{"secret":{"name":"hunter2","name":"hunter2"}}`, `{"secret":["hunter2",hunter2]}`, `{"secret":{"x":"hunter2\ud800"}}`,
	} {
		_, err := p.Fingerprint(jsonRequest([]byte(body)))
		require.ErrorContains(t, err, "secret")
		require.NotContains(t, err.Error(), "hunter2")
	}
	long := make([]byte, 1000)
	for i := range long {
		long[i] = 'n'
	}
	_, err := CanonicalJSON([]byte(`{"` + string(long) + `":x}`))
	require.Less(t, len(err.Error()), 200)
}
