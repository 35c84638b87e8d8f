package canonical

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
	"strconv"
)

// collapseOver is the size in bytes beyond which the encoding of a value stands in that of its parent as its own
// SHA-256. It is part of Algorithm1 and never changes.
//
// It is what keeps memory small and the work linear: whatever the body, only members of objects that are still open
// are held, and each at this size at most, while an array or text of any length runs through one hash.
const collapseOver = 2048

// encoder turns one body into the bytes that are hashed. All its memory is reused from request to request.
type encoder struct {
	policy   *Policy
	maxDepth int
	limit    int // collapseOver, or no limit when a person is to read the result

	body       []byte
	out        []byte  // the encoding so far
	entries    []entry // members of the objects, and elements of the sets, that are open
	spill      []byte  // members on their way into another order
	scratch    []byte  // a text with escapes, decoded
	hashes     []hash.Hash
	hashing    int // how many of them are in use, innermost last
	currencies []currency

	parts partsWriter
	err   *BodyError
}

// entry is a member of an open object: out[start:end] is its name and value. A dropped one has end 0: its name is
// kept, since it must not appear twice either.
type entry struct {
	key        uint64 // the first eight bytes by which it is sorted
	start, end int
}

func newEncoder(p *Policy) *encoder {
	return &encoder{
		policy: p, maxDepth: p.maxDepth, limit: collapseOver,
		out:        make([]byte, 0, 4*collapseOver),
		currencies: make([]currency, p.slots),
	}
}

// mostKept is the memory that a pooled encoder may keep between two requests.
const mostKept = 256 << 10

func (p *Policy) take() *encoder {
	e, ok := p.encoders.Get().(*encoder)
	if !ok {
		e = newEncoder(p)
	}
	e.out, e.entries, e.scratch, e.spill = e.out[:0], e.entries[:0], e.scratch[:0], e.spill[:0]
	e.hashing, e.limit, e.err = 0, collapseOver, nil
	e.parts.reset(p)
	return e
}

func (p *Policy) give(e *encoder) {
	e.body = nil
	clear(e.currencies)
	if cap(e.out)+cap(e.spill)+cap(e.scratch)+24*cap(e.entries) <= mostKept {
		p.encoders.Put(e)
	}
}

// fail notes why the body is refused. It returns -1, which every step passes on instead of a position.
//
//go:noinline
func (e *encoder) fail(at int, reason string) int { return e.refuse(Malformed, at, reason) }

//go:noinline
func (e *encoder) refuse(kind Kind, at int, reason string) int {
	e.err = &BodyError{Kind: kind, Offset: int64(at), Reason: reason}
	return -1
}

// json encodes the whole body.
func (e *encoder) json() {
	if bytes.HasPrefix(e.body, []byte("\xEF\xBB\xBF")) {
		e.fail(0, "a byte-order mark stands before the JSON")
		return
	}
	i := skipSpace(e.body, 0)
	i = e.value(i, 0, e.policy.root)
	if i < 0 {
		return
	}
	if i = skipSpace(e.body, i); i < len(e.body) {
		e.fail(i, "there is more after the end of the JSON value")
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// value encodes the value at i, which is no white space, and returns the position after it.
func (e *encoder) value(i, depth int, n *node) int {
	b := e.body
	if i >= len(b) {
		return e.fail(i, "it ends where a value is expected")
	}
	c := b[i]
	if n != nil {
		if n.money != nil && c != 'n' {
			return e.amount(i, n.money)
		}
		if n.set && c != '[' && c != 'n' {
			return e.refuse(RuleViolated, i, "an array is expected here, since its order is not to count")
		}
	}
	switch c {
	case '"':
		return e.text(i + 1)
	case '{':
		return e.object(i+1, depth+1, n)
	case '[':
		if n != nil && n.set {
			return e.setOf(i+1, depth+1, n)
		}
		return e.array(i+1, depth+1, n)
	case 't':
		return e.literal(i, "true")
	case 'f':
		return e.literal(i, "false")
	case 'n':
		return e.literal(i, "null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return e.number(i)
	}
	return e.fail(i, "no JSON value begins like this")
}

// The first byte of each encoded value. An upper-case letter stands for the digest of what would follow its
// lower-case or bracket form.
const (
	tagNull, tagTrue, tagFalse            = 'z', 't', 'f'
	tagText, tagTextDigest                = 's', 'S'
	tagZero                               = '0'
	tagPositive, tagPositiveDigest        = '+', 'P'
	tagNegative, tagNegativeDigest        = '-', 'N'
	tagObject, tagObjectDigest            = '{', 'O'
	tagArray, tagArrayEnd, tagArrayDigest = '[', ']', 'A'
	tagSet, tagSetEnd, tagSetDigest       = '<', '>', 'X'
	tagMoney, tagMoneyText                = 'm', 'M' // then a number, in minor units
	tagForm, tagFormDigest                = '&', 'F'
	tagPart                               = 'p'
)

func (e *encoder) literal(i int, word string) int {
	if len(e.body)-i < len(word) || string(e.body[i:i+len(word)]) != word {
		return e.fail(i, "no JSON value begins like this")
	}
	tag := word[0]
	if tag == 'n' {
		tag = tagNull
	}
	e.out = append(e.out, tag)
	return i + len(word)
}

// array encodes the elements in their order. Once they outgrow the limit they run through a hash.
func (e *encoder) array(i, depth int, n *node) int {
	if depth > e.maxDepth {
		return e.tooDeep(i - 1)
	}
	b := e.body
	start := len(e.out)
	e.out = append(e.out, tagArray)
	var (
		running hash.Hash
		each    *node
		only    bool
	)
	if n != nil {
		e.anchor(i-1, n)
		each, only = n.each, n.onlyElements
	}
	i = skipSpace(b, i)
	if i < len(b) && b[i] == ']' {
		i++
	} else {
		for k := 0; ; k++ {
			at := len(e.out)
			if n != nil && n.indexed != nil {
				each = n.element(k)
			}
			if i = e.value(i, depth, each); i < 0 {
				return e.inElement(k)
			}
			if only && each == nil || each != nil && each.drop {
				e.out = e.out[:at]
			}
			if len(e.out)-start > e.limit {
				if running == nil {
					running = e.takeHash()
				}
				running.Write(e.out[start:])
				e.out = e.out[:start]
			}
			if i < len(b) && b[i] <= ' ' {
				i = skipSpace(b, i)
			}
			if i >= len(b) {
				return e.fail(i, "it ends within an array")
			}
			if b[i] == ',' {
				i = skipSpace(b, i+1)
				continue
			}
			if b[i] != ']' {
				return e.fail(i, `"," or "]" is expected after an element`)
			}
			i++
			break
		}
	}
	e.out = append(e.out, tagArrayEnd)
	if running == nil && len(e.out)-start > e.limit {
		running = e.takeHash()
	}
	if running != nil {
		running.Write(e.out[start:])
		e.collapse(start, tagArrayDigest, running)
	}
	return i
}

func (e *encoder) tooDeep(at int) int {
	return e.fail(at, "it is nested too deep")
}

// collapse replaces what was encoded since start by its digest.
func (e *encoder) collapse(start int, tag byte, running hash.Hash) {
	e.out = running.Sum(append(e.out[:start], tag))
	e.hashing--
}

func (e *encoder) takeHash() hash.Hash {
	if e.hashing == len(e.hashes) {
		e.hashes = append(e.hashes, sha256.New())
	}
	h := e.hashes[e.hashing]
	e.hashing++
	h.Reset()
	return h
}

func (e *encoder) inElement(k int) int {
	e.err.under(strconv.Itoa(k))
	return -1
}

// noLimit is the limit of an encoder whose result is rendered: nothing is collapsed.
const noLimit = math.MaxInt

func appendUvarint(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)) }
