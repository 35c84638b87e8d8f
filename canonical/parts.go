package canonical

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

// PartKind says which part of a request a Part is.
type PartKind uint8

const (
	PartVersion PartKind = iota + 1 // the route's own version of its contract
	PartMethod
	PartPath
	PartMedia  // the media type
	PartHeader // a request header that the rules name
	PartQuery  // all values of one name in the query
	PartMember // a top-level member of a JSON object, or all values of one name of a form
	PartBody   // a body that has no members, as a whole
	PartOther  // parts that are too many, or whose names are too long, to be kept one by one
)

// Part is something of a request that has a digest of its own.
type Part struct {
	Kind PartKind
	Name string // of a header, query parameter or member
}

// String returns the part as a message names it: amount, ?page, header Prefer, path. The name of a member that could be
// taken for something else is quoted.
func (p Part) String() string {
	switch p.Kind {
	case PartVersion:
		return "contract version"
	case PartMethod:
		return "method"
	case PartPath:
		return "path"
	case PartMedia:
		return "media type"
	case PartHeader:
		return "header " + p.Name
	case PartQuery:
		return "?" + p.Name
	case PartBody:
		return "body"
	case PartOther:
		return "other members"
	}
	if !isToken(p.Name) || p.Name == "method" || p.Name == "path" || p.Name == "body" {
		return strconv.Quote(p.Name)
	}
	return p.Name
}

// mostParts and mostPartName bound what a record keeps: beyond them, parts share one digest.
const (
	mostParts    = 64
	mostPartName = maxShownName
	partsFormat  = 2 // 1 left the names out of what is shared
	partDigest   = 4 // bytes kept of each
)

// memberKey is the key of the digests, and a mark by which digests under another key are told apart.
type memberKey struct {
	k0, k1 uint64
	mark   uint32
}

func newMemberKey(secret []byte) memberKey {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("digests of a request's members, format 1"))
	sum := mac.Sum(nil)
	return memberKey{
		binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:]), binary.LittleEndian.Uint32(sum[16:]),
	}
}

// partsWriter collects the digests of one request's parts.
//
// The encoding is one byte of format, four bytes that mark the key, and for each part its kind, the length of its
// name, the name, and four bytes of its digest.
type partsWriter struct {
	on    bool
	key   memberKey
	buf   []byte
	count int
	rest  uint64
	more  bool
}

func (w *partsWriter) reset(p *Policy) {
	w.on, w.key, w.count, w.rest, w.more = p.members, p.key, 0, 0, false
	w.buf = binary.LittleEndian.AppendUint32(append(w.buf[:0], partsFormat), w.key.mark)
}

// digest hashes the encoded part, after an earlier piece of the same part if there was one.
func (w *partsWriter) digest(kind PartKind, earlier uint64, encoded []byte) uint64 {
	return sipHash(w.key.k0^uint64(kind), w.key.k1^earlier, encoded)
}

func (w *partsWriter) add(kind PartKind, name, encoded []byte) {
	w.put(kind, name, w.digest(kind, 0, encoded))
}

func (w *partsWriter) put(kind PartKind, name []byte, digest uint64) {
	if w.count == mostParts || len(name) > mostPartName {
		var folded [8]byte
		binary.LittleEndian.PutUint64(folded[:], digest)
		w.rest = w.digest(kind, w.digest(kind, w.rest, name), folded[:])
		w.more = true
		return
	}
	w.count++
	w.buf = append(append(w.buf, byte(kind), byte(len(name))), name...)
	w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(digest))
}

func (w *partsWriter) finish() []byte {
	if !w.on {
		return nil
	}
	if w.more {
		w.buf = append(w.buf, byte(PartOther), 0)
		w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(w.rest))
	}
	return append(make([]byte, 0, len(w.buf)), w.buf...)
}

// readParts decodes what finish wrote. It returns nil for digests of another key or format, and for anything that it
// cannot read to its end: what is not known for sure is not shown.
func readParts(b []byte, key memberKey) map[Part]uint32 {
	if len(b) < 5 || b[0] != partsFormat || binary.LittleEndian.Uint32(b[1:]) != key.mark {
		return nil
	}
	parts := map[Part]uint32{}
	for b = b[5:]; len(b) > 0; {
		if len(b) < 2 || len(b) < 2+int(b[1])+partDigest {
			return nil
		}
		n := 2 + int(b[1])
		parts[Part{PartKind(b[0]), string(b[2:n])}] = binary.LittleEndian.Uint32(b[n:])
		b = b[n+partDigest:]
	}
	return parts
}
