package canonical

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math/bits"
	"slices"
	"unicode/utf8"
)

const (
	eachByte = 0x0101010101010101
	highBits = 0x8080808080808080
)

// scanText returns the position of the first byte at or after i that is a quote, a backslash or a control character
// (or the end), and whether all bytes before it are ASCII.
func scanText(b []byte, i int) (end int, ascii bool) {
	var seen uint64
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		if stop := stops(w); stop != 0 {
			n := bits.TrailingZeros64(stop) &^ 7
			seen |= w & (1<<n - 1)
			return i + n>>3, seen&highBits == 0
		}
		seen |= w
		i += 8
	}
	for ; i < len(b); i++ {
		c := b[i]
		if c < 0x20 || c == '"' || c == '\\' {
			break
		}
		seen |= uint64(c)
	}
	return i, seen&highBits == 0
}

// stops returns a mask whose lowest bit marks the first byte of w that is a quote, a backslash or a control character.
// The subtractions set the high bit of a byte that is too small; a false alarm can only stand above a true one.
func stops(w uint64) uint64 {
	quote, escape := w^('"'*eachByte), w^('\\'*eachByte)
	return ((w-0x20*eachByte)&^w | (quote-eachByte)&^quote | (escape-eachByte)&^escape) & highBits
}

// room is what the fast paths below may write without looking: a tag, a length, and a short text in whole words.
const room = 160

func (e *encoder) makeRoom() {
	if cap(e.out)-len(e.out) < room {
		e.out = slices.Grow(e.out, max(room, cap(e.out)))
	}
}

// text encodes the text whose first byte after the quote is at i. Short ones are copied while they are scanned.
func (e *encoder) text(i int) int {
	const short = 0x78 // the longest text whose length is one byte, in whole words
	b := e.body
	e.makeRoom()
	at := len(e.out)
	to := e.out[at : at+room]
	var seen uint64
	for n := 0; n < short && i+n+8 <= len(b); n += 8 {
		w := binary.LittleEndian.Uint64(b[i+n:])
		binary.LittleEndian.PutUint64(to[2+n:], w)
		stop := stops(w)
		if stop == 0 {
			seen |= w
			continue
		}
		k := bits.TrailingZeros64(stop) &^ 7
		seen |= w & (1<<k - 1)
		n += k >> 3
		if b[i+n] != '"' {
			break
		}
		if seen&highBits != 0 && !utf8.Valid(b[i:i+n]) {
			return e.invalidUTF8(i, i+n)
		}
		to[0], to[1] = tagText, byte(n)
		e.out = e.out[:at+2+n]
		return i + n + 1
	}
	end, ascii := scanText(b, i)
	if end >= len(b) || b[end] != '"' {
		return e.textWithEscapes(i, end)
	}
	if !ascii && !utf8.Valid(b[i:end]) {
		return e.invalidUTF8(i, end)
	}
	e.putText(b[i:end])
	return end + 1
}

func (e *encoder) putText(s []byte) {
	switch {
	case len(s) < 0x80:
		e.out = append(append(e.out, tagText, byte(len(s))), s...)
	case len(s) <= e.limit:
		e.out = append(appendUvarint(append(e.out, tagText), len(s)), s...)
	default:
		sum := sha256.Sum256(s)
		e.out = append(append(e.out, tagTextDigest), sum[:]...)
	}
}

// textWithEscapes decodes into the scratch, from where a long text runs through a hash in blocks.
func (e *encoder) textWithEscapes(i, plain int) int {
	var running hash.Hash
	e.scratch = e.scratch[:0]
	i = e.decode(i, plain, func() {
		if len(e.scratch) > e.limit {
			if running == nil {
				running = e.takeHash()
			}
			running.Write(e.scratch)
			e.scratch = e.scratch[:0]
		}
	})
	if i < 0 {
		return i
	}
	if running == nil {
		e.putText(e.scratch)
		return i
	}
	running.Write(e.scratch)
	e.collapse(len(e.out), tagTextDigest, running)
	return i
}

// decode appends to the scratch what the text at i means, and returns the position after its closing quote. plain is
// where the scan stopped. It calls full after each block that it has appended.
func (e *encoder) decode(i, plain int, full func()) int {
	b := e.body
	for {
		if !utf8.Valid(b[i:plain]) {
			return e.invalidUTF8(i, plain)
		}
		e.scratch = append(e.scratch, b[i:plain]...)
		full()
		i = plain
		if i >= len(b) {
			return e.fail(i, "it ends within a text")
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c != '\\':
			return e.fail(i, "a control character stands in a text; it must be escaped")
		}
		if i = e.escape(i); i < 0 {
			return i
		}
		plain, _ = scanText(b, i)
	}
}

// escape decodes the escape at i.
func (e *encoder) escape(i int) int {
	b := e.body
	if i+1 >= len(b) {
		return e.fail(i, "it ends within a text")
	}
	switch c := b[i+1]; c {
	case '"', '\\', '/':
		e.scratch = append(e.scratch, c)
	case 'b':
		e.scratch = append(e.scratch, '\b')
	case 'f':
		e.scratch = append(e.scratch, '\f')
	case 'n':
		e.scratch = append(e.scratch, '\n')
	case 'r':
		e.scratch = append(e.scratch, '\r')
	case 't':
		e.scratch = append(e.scratch, '\t')
	case 'u':
		return e.escapedRune(i)
	default:
		return e.fail(i, "JSON has no such escape")
	}
	return i + 2
}

// escapedRune decodes \uXXXX, or two of them that are a surrogate pair.
func (e *encoder) escapedRune(i int) int {
	r := hex4(e.body, i+2)
	switch {
	case r < 0:
		return e.fail(i, `four hexadecimal digits are expected after "\u"`)
	case r < 0xD800 || r > 0xDFFF:
		e.scratch = utf8.AppendRune(e.scratch, r)
		return i + 6
	case r <= 0xDBFF && i+8 <= len(e.body) && e.body[i+6] == '\\' && e.body[i+7] == 'u':
		if low := hex4(e.body, i+8); low >= 0xDC00 && low <= 0xDFFF {
			e.scratch = utf8.AppendRune(e.scratch, (r-0xD800)<<10+(low-0xDC00)+0x10000)
			return i + 12
		}
	}
	return e.fail(i, "a surrogate stands alone: it is no character")
}

// hex4 returns the value of four hexadecimal digits, or -1.
func hex4(b []byte, i int) rune {
	if i+4 > len(b) {
		return -1
	}
	var r rune
	for _, c := range b[i : i+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

func (e *encoder) invalidUTF8(i, end int) int {
	for i < end {
		r, n := utf8.DecodeRune(e.body[i:end])
		if r == utf8.RuneError && n <= 1 {
			break
		}
		i += n
	}
	return e.fail(i, "a text is not valid UTF-8")
}

// name encodes the name of a member whose first byte after the quote is at i, and returns the key that it is sorted by.
// The length is written plus one, so that a zero byte can end the object.
func (e *encoder) name(i int) (next int, key uint64) {
	b := e.body
	if i+16 <= len(b) {
		e.makeRoom()
		at := len(e.out)
		to := e.out[at : at+room]
		w := binary.LittleEndian.Uint64(b[i:])
		binary.LittleEndian.PutUint64(to[1:], w)
		key, n := bits.ReverseBytes64(w), 0
		stop := stops(w) | w&highBits
		if stop == 0 {
			w = binary.LittleEndian.Uint64(b[i+8:])
			binary.LittleEndian.PutUint64(to[9:], w)
			stop, n = stops(w)|w&highBits, 8
			if stop != 0 {
				n += bits.TrailingZeros64(stop) >> 3
			}
		} else {
			k := bits.TrailingZeros64(stop) &^ 7
			n = k >> 3
			key &^= 1<<(64-k) - 1
		}
		if stop != 0 && b[i+n] == '"' {
			to[0] = byte(n + 1)
			e.out = e.out[:at+1+n]
			return i + n + 1, key
		}
	}
	end, ascii := scanText(b, i)
	if end >= len(b) || b[end] != '"' {
		e.scratch = e.scratch[:0]
		if end = e.decode(i, end, func() {}); end < 0 {
			return end, 0
		}
		e.putName(e.scratch)
		return end, sortKey(e.scratch)
	}
	if !ascii && !utf8.Valid(b[i:end]) {
		return e.invalidUTF8(i, end), 0
	}
	e.putName(b[i:end])
	if i+8 > len(b) {
		return end + 1, sortKey(b[i:end])
	}
	key = binary.BigEndian.Uint64(b[i:])
	if n := end - i; n < 8 {
		key &^= 1<<(64-8*n) - 1
	}
	return end + 1, key
}

func (e *encoder) putName(s []byte) {
	if len(s) < 0x7F {
		e.out = append(append(e.out, byte(len(s)+1)), s...)
		return
	}
	e.out = append(appendUvarint(e.out, len(s)+1), s...)
}

func sortKey(s []byte) uint64 {
	if len(s) >= 8 {
		return binary.BigEndian.Uint64(s)
	}
	var b [8]byte
	copy(b[:], s)
	return binary.BigEndian.Uint64(b[:])
}

// nameAt returns the encoded name at that position of out, and where its value begins.
func (e *encoder) nameAt(at int) (name []byte, value int) {
	return splitName(e.out, at)
}

func splitName(b []byte, at int) (name []byte, value int) {
	n, size := int(b[at]), 1
	if n >= 0x80 {
		n, size = uvarintAt(b, at)
	}
	value = at + size + n - 1
	return b[at+size : value], value
}

func (e *encoder) compareNames(a, b entry) int {
	x, _ := e.nameAt(a.start)
	y, _ := e.nameAt(b.start)
	return bytes.Compare(x, y)
}
