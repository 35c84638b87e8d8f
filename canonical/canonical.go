package canonical

import (
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
)

// noRules is the policy in which everything counts.
var noRules = &Policy{maxDepth: defaultMaxDepth, maxBody: defaultMaxBody}

// CanonicalJSON returns JSON in its canonical form: no white space, members sorted by name in the order of their code
// points, texts with no more escapes than needed, numbers exact. Two texts have the same canonical form if, and only if,
// they mean the same. Its error is a *BodyError.
func CanonicalJSON(text []byte) ([]byte, error) { return noRules.canonicalJSON(text) }

func (p *Policy) canonicalJSON(text []byte) ([]byte, error) {
	e := p.take()
	defer p.give(e)
	e.limit, e.body, e.parts.on = noLimit, text, false
	e.json()
	if e.err != nil {
		return nil, e.err
	}
	r := renderer{in: e.out}
	r.value(0)
	return r.out, nil
}

// Canonical returns all that counts of a request, as a person may read it: one JSON object with the method, the path,
// the query, the headers that count, the media type, the route's version and the body, after the rules have acted. It is
// in canonical form itself. The body stands under "json", "form" (a list of names and values), "bytes" (a digest) or
// "empty".
func (p *Policy) Canonical(r *Request) ([]byte, error) {
	e := p.take()
	defer p.give(e)
	e.limit, e.parts.on = noLimit, false
	l, err := e.request(r)
	if err != nil {
		return nil, err
	}
	text := renderer{in: e.out}
	parts := map[string]func(){
		"method":  func() { text.text(r.Method) },
		"path":    func() { text.text(r.Path) },
		"version": func() { text.text(p.version) },
	}
	if l.media.name != "" {
		parts["media_type"] = func() { text.text(l.media.name) }
	}
	if l.query < l.body {
		parts["query"] = func() { text.pairs(l.query + 1) }
	}
	if headers := p.present(r.Header); len(headers) > 0 {
		parts["headers"] = func() { text.headers(headers, r.Header) }
	}
	switch body := l.body + 1; bodyKind(e.out[l.body]) {
	case bodyEmpty:
		parts["empty"] = func() { text.out = append(text.out, "true"...) }
	case bodyJSON:
		parts["json"] = func() { text.value(body) }
	case bodyForm, bodyMultipart:
		parts["form"] = func() { text.pairs(body + 1) }
	case bodyBytes:
		parts["bytes"] = func() {
			_, size := uvarintAt(e.out, body)
			text.out = append(text.out, `{"length":`+strconv.Itoa(l.length)+`,"sha256":"`...)
			text.out = append(hex.AppendEncode(text.out, e.out[body+size:]), `"}`...)
		}
	}
	names := make([]string, 0, len(parts))
	for name := range parts {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		text.out = append(text.out, "{,"[min(i, 1)])
		text.text(name)
		text.out = append(text.out, ':')
		parts[name]()
	}
	return append(text.out, '}'), nil
}

func (p *Policy) present(h http.Header) []string {
	var names []string
	for _, name := range p.headers {
		if len(h[name]) > 0 {
			names = append(names, name)
		}
	}
	return names
}

func (r *renderer) text(s string) { r.out = appendJSONText(r.out, []byte(s)) }

func (r *renderer) headers(names []string, h http.Header) {
	for i, name := range names {
		r.out = append(r.out, "{,"[min(i, 1)])
		r.text(name)
		r.out = append(r.out, ':')
		for k, line := range h[name] {
			r.out = append(r.out, "[,"[min(k, 1)])
			r.text(line)
		}
		r.out = append(r.out, ']')
	}
	r.out = append(r.out, '}')
}
