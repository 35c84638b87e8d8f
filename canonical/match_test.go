package canonical

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mismatch compares two requests under the rules.
func mismatch(t *testing.T, p *Policy, a, b *Request) *Mismatch {
	t.Helper()
	stored, err := p.Fingerprint(a)
	require.NoError(t, err)
	now, err := p.Fingerprint(b)
	require.NoError(t, err)
	return p.Match(stored, now)
}

func TestMismatchNamesWhatDiffers(t *testing.T) {
	p := mustCompile(t, Rules{Headers: []string{"Prefer"}, MemberKey: []byte("key")})
	base := func() *Request {
		r := jsonRequest([]byte(`{"amount":1,"items":[1,2],"path":"x","note":null}`))
		r.RawQuery = "page=1&page=2&x=1"
		r.Header = http.Header{"Content-Type": {"application/json"}, "Prefer": {"a"}}
		return r
	}
	for _, v := range []struct {
		name   string
		change func(*Request)
		names  []string
	}{
		{"nothing", func(*Request) {}, nil},
		{"a member", func(r *Request) { r.Body = []byte(`{"amount":2,"items":[1,2],"path":"x","note":null}`) }, []string{"amount"}},
		{"deep in a member", func(r *Request) { r.Body = []byte(`{"amount":1,"items":[1,3],"path":"x","note":null}`) }, []string{"items"}},
		{"a missing and a new one", func(r *Request) { r.Body = []byte(`{"amount":1,"items":[1,2],"path":"x","other name":null}`) }, []string{"note", `"other name"`}},
		{"a member that is called like a part", func(r *Request) { r.Body = []byte(`{"amount":1,"items":[1,2],"path":"y","note":null}`) }, []string{`"path"`}},
		{"the kind of body", func(r *Request) { r.Body = []byte(`[]`) }, []string{"amount", "items", "note", `"path"`, "body"}},
		{"path", func(r *Request) { r.Path = "/other" }, []string{"path"}},
		{"method", func(r *Request) { r.Method = "PUT" }, []string{"method"}},
		{"query", func(r *Request) { r.RawQuery = "page=1&x=1" }, []string{"?page"}},
		{"order of a repeated name", func(r *Request) { r.RawQuery = "page=2&page=1&x=1" }, []string{"?page"}},
		{"header", func(r *Request) { delete(r.Header, "Prefer") }, []string{"header Prefer"}},
		{"media type", func(r *Request) { r.Header.Set("Content-Type", "application/vnd.x+json") }, []string{"media type"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			other := base()
			v.change(other)
			m := mismatch(t, p, base(), other)
			if v.names == nil {
				require.Nil(t, m)
				return
			}
			require.Equal(t, Differs, m.Reason)
			require.Equal(t, v.names, m.Names())
			require.Contains(t, m.Error(), strings.Join(v.names, ", "))
		})
	}
}

func TestFieldsOfAFormAreNamed(t *testing.T) {
	p := mustCompile(t, Rules{})
	form := func(body string) *Request {
		return &Request{Method: "POST", Path: "/", Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, Body: []byte(body)}
	}
	require.Equal(t, []string{"a"}, mismatch(t, p, form("a=1&b=2&a=3"), form("a=3&b=2&a=1")).Names())
}

func TestChangedVersionIsAMismatchThatSaysSo(t *testing.T) {
	old, current := mustCompile(t, Rules{Version: "orders/v1"}), mustCompile(t, Rules{Version: "orders/v2"})
	stored, err := old.Fingerprint(jsonRequest([]byte(`{"a":1,"b":2}`)))
	require.NoError(t, err)

	r := jsonRequest([]byte(`{"a":1,"b":3}`))
	now, err := current.Fingerprint(r)
	require.NoError(t, err)
	m := current.Match(stored, now)
	require.Equal(t, VersionChanged, m.Reason)
	require.Equal(t, []string{"contract version", "b"}, m.Names())
	require.ErrorContains(t, m, `"orders/v1", now "orders/v2"`)
}

func TestUnknownAlgorithmNeverMatches(t *testing.T) {
	p := mustCompile(t, Rules{})
	r := jsonRequest([]byte(`{}`))
	now, err := p.Fingerprint(r)
	require.NoError(t, err)
	for _, algorithm := range []int16{0, 2, -1} {
		stored := now
		stored.Algorithm = algorithm
		require.Equal(t, UnknownAlgorithm, p.Match(stored, now).Reason)
		require.Equal(t, UnknownAlgorithm, p.Match(stored, stored).Reason, "not even with itself")
	}
}

func TestDigestsUnderAnotherKeySayNothing(t *testing.T) {
	a, b := jsonRequest([]byte(`{"a":1}`)), jsonRequest([]byte(`{"a":2}`))
	old, current := mustCompile(t, Rules{MemberKey: []byte("old")}), mustCompile(t, Rules{MemberKey: []byte("new")})
	stored, err := old.Fingerprint(a)
	require.NoError(t, err)
	now, err := current.Fingerprint(b)
	require.NoError(t, err)
	require.Empty(t, current.Match(stored, now).Parts)

	same, err := current.Fingerprint(a)
	require.NoError(t, err)
	require.Nil(t, current.Match(stored, same), "the key of the digests is no part of the hash")
	require.NotEqual(t, stored.Members, same.Members)
}

func TestMembersCanBeLeftOut(t *testing.T) {
	p := mustCompile(t, Rules{NoMembers: true})
	a, b := jsonRequest([]byte(`{"a":1}`)), jsonRequest([]byte(`{"a":2}`))
	fp, err := p.Fingerprint(a)
	require.NoError(t, err)
	require.Nil(t, fp.Members)
	m := mismatch(t, p, a, b)
	require.Empty(t, m.Parts)
	require.EqualError(t, m, "the key was used for another request")
}

func TestMembersBeyondTheLimitShareADigest(t *testing.T) {
	wide := func(change int) *Request {
		var s strings.Builder
		s.WriteString(`{"` + strings.Repeat("long", 50) + `":0`)
		for i := range 200 {
			v := i
			if i == change {
				v = -1
			}
			fmt.Fprintf(&s, `,"m%03d":%d`, i, v)
		}
		s.WriteByte('}')
		return jsonRequest([]byte(s.String()))
	}
	p := mustCompile(t, Rules{})
	fp, err := p.Fingerprint(wide(-1))
	require.NoError(t, err)
	require.Less(t, len(fp.Members), 1024)
	require.Nil(t, mismatch(t, p, wide(-1), wide(-1)))
	require.Equal(t, []string{"m007"}, mismatch(t, p, wide(-1), wide(7)).Names())
	require.Equal(t, []string{"other members"}, mismatch(t, p, wide(-1), wide(150)).Names())

	fewer := jsonRequest([]byte(`{"m000":0}`))
	require.Contains(t, mismatch(t, p, wide(-1), fewer).Names(), "m001")
}

func TestDamagedMembersAreIgnored(t *testing.T) {
	p := mustCompile(t, Rules{})
	r := jsonRequest([]byte(`{"a":1}`))
	stored, err := p.Fingerprint(r)
	require.NoError(t, err)
	other := jsonRequest([]byte(`{"a":2}`))
	now, err := p.Fingerprint(other)
	require.NoError(t, err)
	for n := range len(stored.Members) {
		broken := stored
		broken.Members = stored.Members[:n]
		require.NotPanics(t, func() { require.NotNil(t, p.Match(broken, now)) })
	}
}

// TestSipHash compares with another implementation of SipHash-1-3, that of CPython's hash of bytes under the key zero, and
// with the authors' vector for the empty message.
func TestSipHash(t *testing.T) {
	require.Equal(t, uint64(0xabac0158050fc4dc), sipHash(0x0706050403020100, 0x0f0e0d0c0b0a0908, nil))
	message := make([]byte, 256)
	for i := range message {
		message[i] = byte(i)
	}
	for n, want := range map[int]uint64{
		1:   0x68a914128e01e473,
		7:   0x2f098ab0c751325a,
		8:   0xead411e67ebe2eea,
		9:   0x75927f9d95124362,
		15:  0xf30eb725bb91c9ea,
		16:  0x8972188433a5c5b7,
		64:  0x75e05fd5bbc870c6,
		200: 0x7176378efd9e8a23,
	} {
		require.Equal(t, want, sipHash(0, 0, message[:n]), "%d bytes", n)
	}
}

func TestNamesTooLongToBeKeptDifferAllTheSame(t *testing.T) {
	p := mustCompile(t, Rules{})
	named := func(end string) *Request {
		return jsonRequest([]byte(`{"` + strings.Repeat("n", maxShownName) + end + `":1}`))
	}

	require.Equal(t, []string{"other members"}, mismatch(t, p, named("A"), named("B")).Names())
}
