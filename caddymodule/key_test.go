package caddymodule

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var lenient = KeySource{Header: DefaultKeyHeader, MaxLength: DefaultMaxKeyLength}

func TestKeyOfTheHeader(t *testing.T) {
	for _, c := range []struct {
		name   string
		lines  []string
		key    string // accepted as this key
		reason string // or refused, with this in the reason
		strict string // what strict says where it differs
	}{
		{name: "bare token", lines: []string{"abc"}, key: "abc", strict: "quoted string"},
		{name: "quoted string", lines: []string{`"abc"`}, key: "abc"},
		{name: "UUID", lines: []string{"8e03978e-40d5-43dd-bc93-6894a57f9324"}, key: "8e03978e-40d5-43dd-bc93-6894a57f9324", strict: "quoted string"},
		{name: "case matters", lines: []string{"ABC"}, key: "ABC", strict: "quoted string"},
		{name: "base64", lines: []string{"aGVsbG8+/w=="}, key: "aGVsbG8+/w==", strict: "quoted string"},
		{name: "spaces around", lines: []string{"  abc\t"}, key: "abc", strict: "quoted string"},
		{name: "escapes", lines: []string{`"a\"b\\c"`}, key: `a"b\c`},
		{name: "space inside quotes", lines: []string{`"a b"`}, key: "a b"},
		{name: "comma inside quotes", lines: []string{`"a,b"`}, key: "a,b"},

		{name: "none", lines: nil, reason: "no idempotency key"},
		{name: "empty", lines: []string{""}, reason: "is empty", strict: "quoted string"},
		{name: "empty string", lines: []string{`""`}, reason: "is empty"},
		{name: "blank", lines: []string{"  "}, reason: "is empty", strict: "quoted string"},
		{name: "repeated", lines: []string{"abc", "abc"}, reason: "is repeated"},
		{name: "joined by a proxy", lines: []string{"abc, abc"}, reason: "outside of double quotes", strict: "quoted string"},
		{name: "joined without a space", lines: []string{"abc,abc"}, reason: "outside of double quotes", strict: "quoted string"},
		{name: "joined strings", lines: []string{`"abc", "abc"`}, reason: "closing quote"},
		{name: "parameters", lines: []string{`"abc";a=1`}, reason: "closing quote"},
		{name: "parameters of a token", lines: []string{`abc;a=1`}, reason: "outside of double quotes", strict: "quoted string"},
		{name: "unclosed", lines: []string{`"abc`}, reason: "no closing quote"},
		{name: "lone quote", lines: []string{`"`}, reason: "no closing quote"},
		{name: "quote in a token", lines: []string{`ab"c`}, reason: "outside of double quotes", strict: "quoted string"},
		{name: "bad escape", lines: []string{`"a\bc"`}, reason: "backslash"},
		{name: "escape at the end", lines: []string{`"abc\`}, reason: "backslash"},
		{name: "control character", lines: []string{"\"a\x01b\""}, reason: "printable ASCII"},
		{name: "not ASCII", lines: []string{`"ключ"`}, reason: "printable ASCII"},
		{name: "not ASCII, bare", lines: []string{"clé"}, reason: "visible ASCII", strict: "quoted string"},
		{name: "binary of structured fields", lines: []string{":YWJj:"}, key: ":YWJj:", strict: "quoted string"},
		{name: "longest", lines: []string{strings.Repeat("k", 255)}, key: strings.Repeat("k", 255), strict: "quoted string"},
		{name: "too long", lines: []string{strings.Repeat("k", 256)}, reason: "longer than 255", strict: "quoted string"},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := http.Header{DefaultKeyHeader: c.lines}
			check := func(s KeySource, reason string) {
				key, err := s.fromHeader(header)
				if reason == "" {
					require.NoError(t, err)
					require.Equal(t, c.key, key)
				} else {
					require.ErrorContains(t, err, reason)
				}
			}
			check(lenient, c.reason)

			strict := lenient
			strict.Strict = true
			if c.strict == "" {
				c.strict = c.reason
			}
			check(strict, c.strict)
		})
	}
}

func TestKeyErrorNeverShowsTheKey(t *testing.T) {
	for _, line := range []string{`"secret`, `secret;x`, `"secret" x`, "secret\x7f", strings.Repeat("secret", 100)} {
		_, err := lenient.fromHeader(http.Header{DefaultKeyHeader: {line}})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestKeyOfTheBody(t *testing.T) {
	s := KeySource{Body: "meta.key", MaxLength: 10}
	for _, c := range []struct{ body, key, reason string }{
		{`{"meta":{"key":"abc"}}`, "abc", ""},
		{`{"meta":{"key":"\u0061bc"}}`, "abc", ""},
		{`{"meta":{"key":"ключ"}}`, "ключ", ""},
		{`{"meta":{}}`, "", "no idempotency key"},
		{`{"meta":{"key":null}}`, "", "no idempotency key"},
		{`{"meta":{"key":5}}`, "", "not a JSON string"},
		{`{"meta":{"key":""}}`, "", "is empty"},
		{`{"meta":{"key":"a\u0000b"}}`, "", "control character"},
		{`{"meta":{"key":"01234567890"}}`, "", "longer than 10"},
	} {
		key, err := s.fromBody([]byte(c.body))
		if c.reason != "" {
			require.ErrorContains(t, err, c.reason, c.body)
			continue
		}
		require.NoError(t, err, c.body)
		require.Equal(t, c.key, key)
	}
}

// A key in quotes and the same key without are one key, whatever it is, and an
// accepted key fits into an identity.
func FuzzKey(f *testing.F) {
	for _, seed := range []string{"abc", `"abc"`, `"a\"b"`, "a,b", `"`, "", "\x00", `"a";b`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		key, err := lenient.fromHeader(http.Header{DefaultKeyHeader: {line}})
		if err != nil {
			return
		}
		require.NotEmpty(t, key)
		require.LessOrEqual(t, len(key), DefaultMaxKeyLength)
		require.True(t, printable(key))

		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		again, err := lenient.fromHeader(http.Header{DefaultKeyHeader: {quoted}})
		require.NoError(t, err)
		require.Equal(t, key, again)
	})
}
