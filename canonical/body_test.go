package canonical

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func coded(t *testing.T, coding string, body []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zlib":
		w = zlib.NewWriter(&b)
	case "raw":
		w, _ = flate.NewWriter(&b, flate.BestSpeed)
	}
	_, err := w.Write(body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func withCoding(name string, body []byte) *Request {
	r := jsonRequest(body)
	r.Header.Set("Content-Encoding", name)
	return r
}

func TestCodedBodyIsItsContent(t *testing.T) {
	p := mustCompile(t, Rules{})
	body := order(3000)
	plain, err := p.Fingerprint(jsonRequest(body))
	require.NoError(t, err)
	for _, v := range []struct{ name, coding string }{
		{"gzip", "gzip"}, {"x-gzip", "gzip"}, {"GZip", "gzip"}, {"deflate", "zlib"}, {"deflate", "raw"}, {"identity, gzip", "gzip"},
	} {
		r := withCoding(v.name, coded(t, v.coding, body))
		fp, err := p.Fingerprint(r)
		require.NoError(t, err, v.name)
		require.Equal(t, plain, fp, v.name)
		text, err := p.JSON(r)
		require.NoError(t, err, v.name)
		require.Equal(t, string(body), string(text), v.name)
	}
	fp, err := p.Fingerprint(withCoding("identity", body))
	require.NoError(t, err)
	require.Equal(t, plain, fp)
	halves := append(coded(t, "gzip", body[:1000]), coded(t, "gzip", body[1000:])...)
	fp, err = p.Fingerprint(withCoding("gzip", halves))
	require.NoError(t, err, "RFC 1952 allows several members")
	require.Equal(t, plain, fp)
}

func TestBombIsRefused(t *testing.T) {
	p := mustCompile(t, Rules{MaxBody: 1 << 16})
	for _, v := range []struct{ name, coding string }{{"gzip", "gzip"}, {"deflate", "zlib"}, {"deflate", "raw"}} {
		for size, ok := range map[int]bool{1 << 16: true, 1<<16 + 1: false, 1 << 24: false} {
			r := withCoding(v.name, coded(t, v.coding, bytes.Repeat([]byte(" "), size)))
			r.Header.Set("Content-Type", "text/plain")
			_, err := p.Fingerprint(r)
			if ok {
				require.NoError(t, err)
				continue
			}
			var refusal *BodyError
			require.True(t, errors.As(err, &refusal))
			require.True(t, refusal.TooLarge())
		}
	}
}

func TestDamagedCodingIsMalformed(t *testing.T) {
	p := mustCompile(t, Rules{})
	for _, coding := range []string{"gzip", "zlib", "raw"} {
		name := map[bool]string{true: "gzip", false: "deflate"}[coding == "gzip"]
		whole := coded(t, coding, []byte(`{"a":"some text"}`))
		for n := 1; n < len(whole); n++ {
			_, err := p.Fingerprint(withCoding(name, whole[:n]))
			require.Error(t, err, "%s cut at %d", coding, n)
		}
		_, err := p.Fingerprint(withCoding(name, append(whole[:len(whole):len(whole)], 'x')))
		require.Error(t, err, coding)
	}
}

type part struct{ name, file, kind, content string }

func multipartRequest(t *testing.T, boundary string, parts ...part) *Request {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	require.NoError(t, w.SetBoundary(boundary))
	for _, p := range parts {
		h := textproto.MIMEHeader{"Content-Disposition": {`form-data; name="` + p.name + `"`}}
		if p.file != "" {
			h.Set("Content-Disposition", fmt.Sprintf("form-data; name=%q; filename=%q", p.name, p.file))
		}
		if p.kind != "" {
			h.Set("Content-Type", p.kind)
		}
		dst, err := w.CreatePart(h)
		require.NoError(t, err)
		_, err = io.WriteString(dst, p.content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return &Request{Method: "POST", Path: "/", Header: http.Header{"Content-Type": {w.FormDataContentType()}}, Body: b.Bytes()}
}

func TestMultipart(t *testing.T) {
	p := mustCompile(t, Rules{Exclude: []string{"trace"}, Money: []Money{{"amount", "currency"}}, Defaults: []Default{{Path: "currency", Value: []byte(`"CNY"`)}}})
	base := []part{{"a", "", "", "1"}, {"doc", "x.pdf", "application/pdf", strings.Repeat("content", 5000)}, {"amount", "", "", "1.5"}}
	with := func(i int, changed part) []part {
		parts := append([]part{}, base...)
		parts[i] = changed
		return parts
	}
	r := multipartRequest(t, "one", base...)
	for name, same := range map[string][]part{
		"another boundary":  base,
		"another order":     {base[2], base[0], base[1]},
		"excluded part":     append(base[:3:3], part{"trace", "", "", "7"}),
		"explicit default":  append(base[:3:3], part{"currency", "", "", "CNY"}),
		"amount spelt anew": with(2, part{"amount", "", "", "1.50"}),
	} {
		require.Nil(t, mismatch(t, p, r, multipartRequest(t, "two", same...)), name)
	}
	for name, other := range map[string][]part{
		"a":    with(0, part{"a", "", "", "2"}),
		"doc":  with(1, part{"doc", "y.pdf", "application/pdf", base[1].content}),
		"doc ": with(1, part{"doc", "x.pdf", "text/plain", base[1].content}),
		" doc": with(1, part{"doc", "x.pdf", "application/pdf", base[1].content + "x"}),
		" a":   append(base[:3:3], part{"a", "", "", "1"}),
		"b":    append(base[:3:3], part{"b", "", "", ""}),
	} {
		m := mismatch(t, p, r, multipartRequest(t, "one", other...))
		require.NotNil(t, m, name)
		require.Equal(t, []string{strings.TrimSpace(name)}, m.Names())
	}
	text, err := p.Canonical(r)
	require.NoError(t, err)
	require.Contains(t, string(text), `"form":[["a","1"],["amount","150"],["currency","CNY"],["doc",{"file":"x.pdf","media_type":"application/pdf","sha256":"`)

	for name, body := range map[string]string{"cut": string(r.Body[:len(r.Body)/2]), "no end": "--one\r\n", "nothing": "x",
		"no name": "--one\r\nContent-Disposition: form-data\r\n\r\n1\r\n--one--\r\n"} {
		_, err := p.Fingerprint(&Request{Header: r.Header, Body: []byte(body)})
		require.Error(t, err, name)
		require.Contains(t, err.Error(), "part", name)
	}
	many := make([]part, mostFormParts+1)
	for i := range many {
		many[i] = part{"a", "", "", ""}
	}
	_, err = p.Fingerprint(multipartRequest(t, "one", many...))
	require.ErrorContains(t, err, "more than 1000 parts")
}

// TestSizesAroundTheLimit crosses the size at which a value is replaced by its digest, for each kind of value.
func TestSizesAroundTheLimit(t *testing.T) {
	p := mustCompile(t, Rules{Sets: []string{"set"}})
	seen := map[[32]byte]string{}
	for n := collapseOver - 12; n < collapseOver+12; n++ {
		fill := strings.Repeat("x", n)
		for kind, bodies := range map[string][2]string{
			"text":    {`"` + fill + `"`, `"\u0078` + fill[1:] + `"`},
			"array":   {`["` + fill[:n/2] + `","` + fill[n/2:] + `"]`, ` [ "` + fill[:n/2] + `" , "` + fill[n/2:] + `"]`},
			"object":  {`{"a":"` + fill[:n/2] + `","b":"` + fill[n/2:] + `"}`, `{"b":"` + fill[n/2:] + `","a":"` + fill[:n/2] + `"}`},
			"set":     {`{"set":["` + fill[:n/2] + `","y` + fill[n/2:] + `"]}`, `{"set":["y` + fill[n/2:] + `","` + fill[:n/2] + `"]}`},
			"number":  {strings.Repeat("7", n), strings.Repeat("7", n) + ".000"},
			"fields":  {`{"` + fill + `":1,"a":2}`, `{"a":2,"` + fill + `":1}`},
			"integer": {`[` + strings.Repeat("1,", n/3) + `1]`, `[` + strings.Repeat("1.0,", n/3) + `1]`},
		} {
			a, err := p.Fingerprint(jsonRequest([]byte(bodies[0])))
			require.NoError(t, err, kind)
			b, err := p.Fingerprint(jsonRequest([]byte(bodies[1])))
			require.NoError(t, err, kind)
			require.Equal(t, a, b, "%s of %d", kind, n)
			if other, ok := seen[a.Sum]; ok && other != bodies[0] {
				t.Fatalf("%s of %d has the fingerprint of another", kind, n)
			}
			seen[a.Sum] = bodies[0]
		}
	}
}
