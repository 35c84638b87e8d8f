package canonical

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// fuzzRules are the sets of rules that fuzzing chooses from.
var fuzzRules = []Rules{
	{},
	{NoMembers: true, Query: Query{Off: true}, MaxDepth: 3},
	{Exclude: []string{"a", "b.#.c"}, Sets: []string{"d", "b.#.e"}, Headers: []string{"Prefer"}},
	{Include: []string{"a", "b.#.c"}, Query: Query{Only: []string{"a"}}},
	{
		Defaults: []Default{{Path: "a", Value: []byte(`{"b":[]}`)}, {Path: "b.#.c", Value: []byte(`0`), NullIsOmitted: true}},
		Money:    []Money{{"amount", "currency"}, {"b.#.amount", "currency"}, {"b.0.x", "b.1.y"}},
		Sets:     []string{"d"}, MaxBody: 4096,
	},
}

func FuzzFingerprint(f *testing.F) {
	var policies []*Policy
	for _, r := range fuzzRules {
		policies = append(policies, mustCompile(f, r))
	}
	for _, body := range []string{
		`{"a":{"b":[1,2.50,-0,1e99]},"d":["y","x"],"amount":"12.5","currency":"CNY"}`,
		`{"b":[{"c":1,"e":[2,1],"amount":1.5},{"c":null,"y":"KWD"}],"\u0061":"\ud83d\ude00"}`,
		`[[[[]]],{"a":1,"a":2}]`, `"\ud800"`, `1e999999999`, `a=1&b=%41&amount=3`,
		"--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x--\r\n",
	} {
		for rules := range fuzzRules {
			f.Add([]byte(body), "application/json", "", "a=1&b=%zz&a", byte(rules))
		}
		f.Add([]byte(body), "application/x-www-form-urlencoded", "", "", byte(4))
		f.Add([]byte(body), "multipart/form-data; boundary=x", "", "", byte(2))
		f.Add([]byte(body), "", "gzip", "&=", byte(0))
		f.Add([]byte(body), "text/plain", "deflate", "", byte(4))
	}
	f.Fuzz(func(t *testing.T, body []byte, contentType, coding, query string, rules byte) {
		p := policies[int(rules)%len(policies)]
		r := &Request{Method: "POST", Path: "/", RawQuery: query, Header: http.Header{}, Body: body}
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		if coding != "" {
			r.Header.Set("Content-Encoding", coding)
		}
		before := string(body)
		fp, err := p.Fingerprint(r)
		require.Equal(t, before, string(body), "the body is only read")

		text, textErr := p.Canonical(r)
		require.Equal(t, err, textErr, "what a person is shown is what is hashed")
		if err != nil {
			var refusal *BodyError
			require.True(t, errors.As(err, &refusal))
			require.NotEmpty(t, refusal.Reason)
			require.True(t, Malformed <= refusal.Kind && refusal.Kind <= RuleViolated)
			if coding == "" {
				require.LessOrEqual(t, refusal.Offset, int64(len(body)))
			}
			require.GreaterOrEqual(t, refusal.Offset, int64(-1))
			return
		}
		again, err := p.Fingerprint(r)
		require.NoError(t, err)
		require.Equal(t, fp, again)
		require.Nil(t, p.Match(fp, again))

		deep := mustCompile(t, Rules{MaxDepth: 200})
		once, err := deep.canonicalJSON(text)
		require.NoError(t, err, "%s", text)
		require.Equal(t, string(text), string(once))
	})
}
