package canonical

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
)

// Request is what a fingerprint is made of. Nothing in it is changed or kept.
type Request struct {
	Method string
	// Path is the concrete path as the client sent it, before any rewriting. It counts by its bytes.
	Path     string
	RawQuery string
	// Header has canonical keys, as net/http makes them. Content-Type and Content-Encoding always count, others when
	// the rules name them.
	Header http.Header
	// Body is the whole body as it came, still coded if it has a Content-Encoding.
	Body []byte
}

// Algorithm1 is the first way to make a fingerprint. What it makes of a request never changes.
const Algorithm1 int16 = 1

// domain stands before everything that is hashed, so that no other use of SHA-256 can yield a fingerprint.
const domain = "idempotency fingerprint 1\n"

// Fingerprint is what a record keeps of a request in order to recognize it.
type Fingerprint struct {
	Algorithm int16
	Version   string // the route's own version at that time
	Sum       [32]byte
	// Members holds short keyed digests of the request's parts, from which Match tells what differs. Empty if the
	// rules say so.
	Members []byte
}

// Fingerprint computes the fingerprint of a request. Its error is a *BodyError.
func (p *Policy) Fingerprint(r *Request) (Fingerprint, error) {
	e := p.take()
	defer p.give(e)
	if _, err := e.request(r); err != nil {
		return Fingerprint{}, err
	}
	return Fingerprint{Algorithm1, p.version, sha256.Sum256(e.out), e.parts.finish()}, nil
}

// JSON returns the body without its Content-Encoding, for whoever reads a member of it that the rules may leave out; a
// body that is there and is not JSON by its media type is refused. It is well-formed if the request has a fingerprint. Its
// error is a *BodyError.
func (p *Policy) JSON(r *Request) ([]byte, error) {
	m, err := parseMedia(r.Header)
	if err != nil {
		return nil, err
	}
	body, err := p.decoded(r)
	if err == nil && len(body) > 0 && m.kind != bodyJSON {
		// An upstream may take it for JSON all the same.
		err = &BodyError{Kind: UnsupportedMedia, Offset: -1, Reason: "it is not JSON, as which this route needs it: send it as application/json"}
	}
	return body, err
}

// layout says where the sections of an encoded request begin.
type layout struct {
	media       media
	query, body int
	length      int // of the decoded body
}

// request encodes all that counts of a request. Each section begins with its own byte, and each text in it with its
// length, so that nothing can be moved from one to another.
func (e *encoder) request(r *Request) (layout, error) {
	m, err := parseMedia(r.Header)
	if err != nil {
		return layout{}, err
	}
	body, err := e.policy.decoded(r)
	if err != nil {
		return layout{}, err
	}
	e.out = append(e.out, domain...)
	e.section('V', PartVersion, e.policy.version)
	e.section('M', PartMethod, r.Method)
	e.section('P', PartPath, r.Path)
	if m.name != "" {
		e.section('T', PartMedia, m.name)
	}
	for _, name := range e.policy.headers {
		e.header(name, r.Header[name])
	}
	l := layout{media: m, query: len(e.out), length: len(body)}
	e.queryPart(r.RawQuery)
	l.body = len(e.out)
	e.bodyPart(body, m)
	if e.err != nil {
		return layout{}, e.err
	}
	return l, nil
}

func (e *encoder) section(tag byte, kind PartKind, s string) {
	e.out = appendUvarint(append(e.out, tag), len(s))
	at := len(e.out)
	e.out = append(e.out, s...)
	if e.parts.on && kind != PartVersion { // Fingerprint.Version says it in full
		e.parts.add(kind, nil, e.out[at:])
	}
}

// header encodes each line of a header that is there; one that is absent leaves no trace.
func (e *encoder) header(name string, lines []string) {
	if len(lines) == 0 {
		return
	}
	at := len(e.out)
	e.out = append(e.out, 'H')
	e.putName([]byte(name))
	e.out = appendUvarint(e.out, len(lines))
	for _, line := range lines {
		e.out = append(appendUvarint(e.out, len(line)), line...)
	}
	if e.parts.on {
		e.parts.add(PartHeader, []byte(name), e.out[at:])
	}
}

// bodyPart encodes the body. An empty one is of its own kind whatever its media type: it is neither JSON nor refused.
func (e *encoder) bodyPart(body []byte, m media) {
	e.body = body
	kind := m.kind
	if len(body) == 0 {
		kind = bodyEmpty
	}
	e.out = append(e.out, byte(kind))
	at := len(e.out)
	switch kind {
	case bodyJSON:
		e.json()
		if e.err == nil && len(e.out) > at && e.out[at] != tagObject && e.out[at] != tagObjectDigest {
			break
		}
		return // its members are noted
	case bodyForm:
		e.form()
		return
	case bodyMultipart:
		e.multipart(m.boundary)
		return
	case bodyBytes:
		sum := sha256.Sum256(body)
		e.out = append(binary.AppendUvarint(e.out, uint64(len(body))), sum[:]...)
	}
	if e.parts.on && e.err == nil {
		e.parts.add(PartBody, nil, e.out[at-1:])
	}
}
