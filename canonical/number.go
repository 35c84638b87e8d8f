package canonical

import "encoding/binary"

// decimal is a number as it is written: whole and frac are its digits before and after the point. Brought to its
// normal form, they are the digits of an integer without zeros at either end, times ten to the power of exp. No
// exponent is ever carried out: 1e999999999 is one digit and one exponent.
type decimal struct {
	negative    bool
	whole, frac []byte
	exp         int64
}

func (d *decimal) isZero() bool { return len(d.whole) == 0 && len(d.frac) == 0 }

// mostExponentDigits bounds an exponent to 18 digits, so that it can be shifted by the length of any body and still fit
// into 64 bits. A number beyond that is refused, since no system could have meant it.
const mostExponentDigits = 18

// parseDecimal reads a number in JSON's notation at i. It returns the position after it, or a reason to refuse it and
// the position of that.
func parseDecimal(b []byte, i int) (d decimal, next int, reason string) {
	if b[i] == '-' {
		d.negative = true
		i++
	}
	begin := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	d.whole = b[begin:i]
	switch {
	case len(d.whole) == 0:
		return d, i, "a digit is expected"
	case len(d.whole) > 1 && d.whole[0] == '0':
		return d, begin, "a number begins with a zero too many"
	}
	if i < len(b) && (b[i] == '.' || b[i]|0x20 == 'e') {
		if b[i] == '.' {
			i++
			begin = i
			for i < len(b) && b[i]-'0' <= 9 {
				i++
			}
			if d.frac = b[begin:i]; len(d.frac) == 0 {
				return d, i, "a digit is expected after the decimal point"
			}
		}
		if i < len(b) && b[i]|0x20 == 'e' {
			var digits []byte
			negative := false
			if i++; i < len(b) && (b[i] == '-' || b[i] == '+') {
				negative = b[i] == '-'
				i++
			}
			begin = i
			for i < len(b) && b[i]-'0' <= 9 {
				i++
			}
			if begin == i {
				return d, i, "a digit is expected in the exponent"
			}
			for digits = b[begin:i]; len(digits) > 0 && digits[0] == '0'; {
				digits = digits[1:]
			}
			d.normalize()
			if len(digits) > mostExponentDigits {
				if d.isZero() {
					return d, i, ""
				}
				return d, begin, "the exponent has more than 18 digits"
			}
			var exp int64
			for _, c := range digits {
				exp = exp*10 + int64(c-'0')
			}
			if negative {
				exp = -exp
			}
			d.exp += exp
			return d, i, ""
		}
	}
	d.normalize()
	return d, i, ""
}

func (d *decimal) normalize() {
	for len(d.frac) > 0 && d.frac[len(d.frac)-1] == '0' {
		d.frac = d.frac[:len(d.frac)-1]
	}
	d.exp = -int64(len(d.frac))
	if d.whole[0] == '0' {
		d.whole = nil
		for len(d.frac) > 0 && d.frac[0] == '0' {
			d.frac = d.frac[1:]
		}
	}
	if len(d.frac) == 0 {
		for len(d.whole) > 0 && d.whole[len(d.whole)-1] == '0' {
			d.whole = d.whole[:len(d.whole)-1]
			d.exp++
		}
	}
}

// number encodes the number at i. An integer, or a short decimal fraction, is copied while it is scanned.
func (e *encoder) number(i int) int {
	const short = 64 // digits, so that the length and the exponent are one byte each
	b := e.body
	e.makeRoom()
	at := len(e.out)
	to := e.out[at : at+room]
	tag, j := byte(tagPositive), i
	if b[j] == '-' {
		tag = tagNegative
		j++
	}
	n, whole := 0, 0
	switch {
	case j < len(b) && b[j]-'1' < 9:
		for j < len(b) && b[j]-'0' <= 9 && n < short {
			to[2+n] = b[j]
			n++
			j++
		}
		whole = n
	case j+2 < len(b) && b[j] == '0' && b[j+1] == '.' && b[j+2]-'1' < 9:
		j++ // 0.13: the zero is no digit of it
	default:
		n = short
	}
	if j+1 < len(b) && b[j] == '.' && b[j+1]-'0' <= 9 {
		for j++; j < len(b) && b[j]-'0' <= 9 && n < short; j++ {
			to[2+n] = b[j]
			n++
		}
	}
	if n < short && (j == len(b) || b[j] != '.' && b[j]|0x20 != 'e') {
		for to[1+n] == '0' {
			n-- // ends at the first digit, which is none
		}
		exp := whole - n
		to[0], to[1], to[2+n] = tag, byte(n), byte(exp<<1^exp>>63)
		e.out = e.out[:at+3+n]
		return j
	}
	d, next, reason := parseDecimal(b, i)
	if reason != "" {
		return e.fail(next, reason)
	}
	e.putDecimal(&d)
	return next
}

// putDecimal encodes the sign, the digits and the exponent. Zero has no sign and no exponent: -0 is 0.
func (e *encoder) putDecimal(d *decimal) {
	if d.isZero() {
		e.out = append(e.out, tagZero)
		return
	}
	tag, digest := byte(tagPositive), byte(tagPositiveDigest)
	if d.negative {
		tag, digest = tagNegative, tagNegativeDigest
	}
	if n := len(d.whole) + len(d.frac); n <= e.limit {
		e.out = appendUvarint(append(e.out, tag), n)
		e.out = append(append(e.out, d.whole...), d.frac...)
	} else {
		running := e.takeHash()
		running.Write(d.whole)
		running.Write(d.frac)
		e.collapse(len(e.out), digest, running)
	}
	e.out = binary.AppendVarint(e.out, d.exp)
}
