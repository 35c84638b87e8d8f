package canonical

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPairs(t *testing.T) {
	file, err := os.Open("testdata/pairs.tsv")
	require.NoError(t, err)
	defer file.Close()

	rules, rows := Rules{}, 0
	policy := mustCompile(t, rules)
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		cells := strings.Split(lines.Text(), "\t")
		if cells[0] == "" || strings.HasPrefix(cells[0], "#") {
			continue
		}
		require.GreaterOrEqual(t, len(cells), 2, "line %d", n)
		if cells[0] == "rules" {
			rules = Rules{}
			require.NoError(t, json.Unmarshal([]byte(cells[1]), &rules), "line %d", n)
			policy = mustCompile(t, rules)
			continue
		}
		rows++
		t.Run(fmt.Sprintf("line %d", n), func(t *testing.T) {
			require.GreaterOrEqual(t, len(cells), 3, lines.Text())
			left := cell(t, cells[1])
			if cells[0] == "!" {
				requireRefused(t, policy, left, cells[2])
				return
			}
			right := cell(t, cells[2])
			a, err := policy.Fingerprint(left)
			require.NoError(t, err, cells[1])
			b, err := policy.Fingerprint(right)
			require.NoError(t, err, cells[2])
			x, err := policy.Canonical(left)
			require.NoError(t, err, cells[1])
			y, err := policy.Canonical(right)
			require.NoError(t, err, cells[2])
			if cells[0] == "=" {
				require.Equal(t, a, b, "%s and %s are the same", cells[1], cells[2])
				require.Equal(t, string(x), string(y))
				require.Nil(t, policy.Match(a, b))
				return
			}
			require.Equal(t, "x", cells[0])
			require.NotEqual(t, a.Sum, b.Sum, "%s and %s are different", cells[1], cells[2])
			mismatch := policy.Match(a, b)
			require.NotNil(t, mismatch)
			require.NotEmpty(t, mismatch.Parts)
		})
	}
	require.NoError(t, lines.Err())
	require.GreaterOrEqual(t, rows, 200)
}

func requireRefused(t *testing.T, p *Policy, r *Request, want string) {
	t.Helper()
	_, err := p.Fingerprint(r)
	var refusal *BodyError
	require.True(t, errors.As(err, &refusal), "%q is refused, got %v", r.Body, err)
	at, reason, _ := strings.Cut(want, " ")
	offset, err := strconv.ParseInt(at, 10, 64)
	require.NoError(t, err)
	if offset != -2 { // a position that belongs to the standard library
		require.Equal(t, offset, refusal.Offset, refusal.Error())
	}
	require.Contains(t, refusal.Error(), reason)
	_, err = p.Canonical(r)
	require.Equal(t, refusal, err)
}

// cell reads a request as pairs.tsv writes it.
func cell(t *testing.T, s string) *Request {
	t.Helper()
	r := &Request{Method: "POST", Path: "/orders", Header: http.Header{}}
	if quoted, ok := strings.CutPrefix(s, "go:"); ok {
		body, err := strconv.Unquote(quoted)
		require.NoError(t, err, s)
		s = body
	}
	rest, ok := strings.CutPrefix(s, "@")
	if !ok {
		r.Header.Set("Content-Type", "application/json")
		r.Body = []byte(s)
		return r
	}
	head, body, _ := strings.Cut(rest, " :: ")
	r.Body = []byte(body)
	target, headers, _ := strings.Cut(head, " [")
	r.Method, target, _ = strings.Cut(target, " ")
	r.Path, r.RawQuery, _ = strings.Cut(target, "?")
	for line := range strings.SplitSeq(strings.TrimSuffix(headers, "]"), "] [") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			r.Header.Add(name, strings.TrimSpace(value))
		}
	}
	return r
}
