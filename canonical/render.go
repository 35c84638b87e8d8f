package canonical

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"unicode/utf8"
)

// renderer writes what was encoded without a limit as JSON in its canonical form. That it reads the very bytes that are
// hashed is the point: what a person sees is what counts.
type renderer struct {
	in  []byte
	out []byte
}

func uvarintAt(b []byte, at int) (n, size int) {
	v, size := binary.Uvarint(b[at:])
	return int(v), size
}

// value renders the value at i and returns the position after it.
func (r *renderer) value(i int) int {
	tag := r.in[i]
	i++
	switch tag {
	case tagNull:
		r.out = append(r.out, "null"...)
	case tagTrue:
		r.out = append(r.out, "true"...)
	case tagFalse:
		r.out = append(r.out, "false"...)
	case tagText:
		n, size := uvarintAt(r.in, i)
		i += size + n
		r.out = appendJSONText(r.out, r.in[i-n:i])
	case tagZero:
		r.out = append(r.out, '0')
	case tagPositive, tagNegative:
		return r.number(i, tag == tagNegative)
	case tagMoney:
		return r.value(i)
	case tagMoneyText:
		r.out = append(r.out, '"')
		i = r.value(i)
		r.out = append(r.out, '"')
	case tagObject:
		return r.members(i)
	case tagArray, tagSet:
		return r.elements(i, tag+2) // "]" and ">" come two after their opposites
	case tagPart:
		return r.part(i)
	}
	return i
}

func (r *renderer) members(i int) int {
	r.out = append(r.out, '{')
	for n := 0; r.in[i] != 0; n++ {
		if n > 0 {
			r.out = append(r.out, ',')
		}
		var name []byte
		name, i = splitName(r.in, i)
		r.out = append(appendJSONText(r.out, name), ':')
		i = r.value(i)
	}
	r.out = append(r.out, '}')
	return i + 1
}

func (r *renderer) elements(i int, end byte) int {
	r.out = append(r.out, '[')
	for n := 0; r.in[i] != end; n++ {
		if n > 0 {
			r.out = append(r.out, ',')
		}
		i = r.value(i)
	}
	r.out = append(r.out, ']')
	return i + 1
}

// pairs renders the fields of a form, or the pairs of a query, as a list of name and value.
func (r *renderer) pairs(i int) int {
	r.out = append(r.out, '[')
	for n := 0; r.in[i] != 0; n++ {
		if n > 0 {
			r.out = append(r.out, ',')
		}
		var name []byte
		name, i = splitName(r.in, i)
		r.out = append(appendJSONText(append(r.out, '['), name), ',')
		if r.in[i] == tagRaw {
			n, size := uvarintAt(r.in, i+1)
			i += 1 + size + n
			r.out = append(r.out, `{"undecoded":`...)
			r.out = append(appendJSONText(r.out, r.in[i-n:i]), '}')
		} else {
			i = r.value(i)
		}
		r.out = append(r.out, ']')
	}
	r.out = append(r.out, ']')
	return i + 1
}

// part renders what counts of a file in a form.
func (r *renderer) part(i int) int {
	isFile := r.in[i] == 1
	i++
	r.out = append(r.out, '{')
	for _, label := range []string{`"file":`, `"media_type":`, `"transfer_encoding":`} {
		n, size := uvarintAt(r.in, i)
		i += size + n
		if n > 0 || isFile && label == `"file":` {
			r.out = append(appendJSONText(append(r.out, label...), r.in[i-n:i]), ',')
		}
	}
	r.out = append(r.out, `"sha256":"`...)
	r.out = append(hex.AppendEncode(r.out, r.in[i:i+32]), `"}`...)
	return i + 32
}

// number renders digits and an exponent as ECMAScript lays out a number, and so RFC 8785: plain from 1e-6 to below
// 1e21, otherwise with one digit before the point. Unlike there, all digits are kept.
func (r *renderer) number(i int, negative bool) int {
	n, size := uvarintAt(r.in, i)
	i += size + n
	digits := r.in[i-n : i]
	exp, size := binary.Varint(r.in[i:])
	i += size
	if negative {
		r.out = append(r.out, '-')
	}
	point := exp + int64(n) // the place of the decimal point, counted from the first digit
	switch {
	case point >= int64(n) && point <= 21:
		r.out = append(r.out, digits...)
		for range point - int64(n) {
			r.out = append(r.out, '0')
		}
	case point > 0 && point <= 21:
		r.out = append(append(append(r.out, digits[:point]...), '.'), digits[point:]...)
	case point > -6 && point <= 0:
		r.out = append(r.out, "0."...)
		for range -point {
			r.out = append(r.out, '0')
		}
		r.out = append(r.out, digits...)
	default:
		r.out = append(r.out, digits[0])
		if n > 1 {
			r.out = append(append(r.out, '.'), digits[1:]...)
		}
		r.out = append(r.out, 'e')
		if point > 0 {
			r.out = append(r.out, '+')
		}
		r.out = strconv.AppendInt(r.out, point-1, 10)
	}
	return i
}

// appendJSONText writes a text as RFC 8785 does: nothing is escaped but what must be. A byte of a form or path that is
// no UTF-8, which JSON cannot hold, is shown as %XX.
func appendJSONText(out, s []byte) []byte {
	const hexDigits, upperHex = "0123456789abcdef", "0123456789ABCDEF"
	out = append(out, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			if r, n := utf8.DecodeRune(s[i:]); r != utf8.RuneError || n > 1 {
				out = append(out, s[i:i+n]...)
				i += n
				continue
			}
			out = append(out, '%', upperHex[c>>4], upperHex[c&15])
			i++
			continue
		}
		switch c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\b':
			out = append(out, `\b`...)
		case '\f':
			out = append(out, `\f`...)
		case '\n':
			out = append(out, `\n`...)
		case '\r':
			out = append(out, `\r`...)
		case '\t':
			out = append(out, `\t`...)
		default:
			if c < 0x20 {
				out = append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			} else {
				out = append(out, c)
			}
		}
		i++
	}
	return append(out, '"')
}
