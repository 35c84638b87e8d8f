package canonical

import (
	"bytes"
	"cmp"
	"slices"
	"sort"
)

const (
	tagQuery, tagQueryDigest = '?', 'U'
	tagRaw                   = 'r' // a pair that cannot be decoded: its bytes
)

// mostPairs bounds the fields of a form. A query is bounded by what a server takes for a head.
const mostPairs = 10_000

// queryPart encodes the query: its pairs decoded and sorted by name, repeats in their order. Like the WHATWG's URL
// standard, and unlike net/url, it refuses nothing: a pair with a broken escape counts by its bytes, and cannot be
// taken for one that is decoded to the same.
func (e *encoder) queryPart(raw string) {
	if raw == "" || e.policy.query.Off {
		return
	}
	start, first := len(e.out), len(e.entries)
	e.out = append(e.out, tagQuery)
	e.spill = append(e.spill[:0], raw...)
	e.pairs(e.spill, 0, true)
	if only := e.policy.query.Only; len(only) > 0 {
		kept := e.entries[first:first]
		for _, m := range e.entries[first:] {
			if name, _ := e.nameAt(m.start); slices.Contains(only, string(name)) {
				kept = append(kept, m)
			}
		}
		e.entries = e.entries[:first+len(kept)]
	}
	if len(e.entries) == first {
		e.out = e.out[:start]
		return
	}
	e.sortPairs(e.entries[first:], nil)
	e.addPairs(PartQuery, e.entries[first:])
	e.close(start, first, false, tagQueryDigest)
}

// pairs lays down the pairs of a query or form in their order. A broken escape is taken literally if lenient, and
// otherwise refused.
func (e *encoder) pairs(b []byte, at int, lenient bool) bool {
	for at <= len(b) {
		end := len(b)
		if n := bytes.IndexByte(b[at:], '&'); n >= 0 {
			end = at + n
		}
		if end > at {
			start := len(e.out)
			if broken := e.pair(b, at, end); broken >= 0 {
				if !lenient {
					e.fail(broken, `two hexadecimal digits are expected after "%"`)
					return false
				}
				raw := b[at:end]
				name, _, _ := bytes.Cut(raw, []byte("="))
				e.out = e.out[:start]
				e.putName(name)
				e.out = append(appendUvarint(append(e.out, tagRaw), len(raw)), raw...)
			}
			if len(e.entries) == mostPairs && !lenient {
				e.refuse(TooLarge, at, "the form has more than 10000 fields")
				return false
			}
			name, _ := e.nameAt(start)
			e.entries = append(e.entries, entry{sortKey(name), start, len(e.out)})
		}
		at = end + 1
	}
	return true
}

// pair encodes one pair, or returns the position of a broken escape. "a" is "a=", as every reader of forms has it.
func (e *encoder) pair(b []byte, at, end int) int {
	middle := end
	if n := bytes.IndexByte(b[at:end], '='); n >= 0 {
		middle = at + n
	}
	if broken := e.unescape(b, at, middle); broken >= 0 {
		return broken
	}
	e.putName(e.scratch)
	if broken := e.unescape(b, min(middle+1, end), end); broken >= 0 {
		return broken
	}
	e.putText(e.scratch)
	return -1
}

// unescape decodes b[at:end] into the scratch, or returns the position of a broken escape.
func (e *encoder) unescape(b []byte, at, end int) int {
	e.scratch = e.scratch[:0]
	for i := at; i < end; i++ {
		c := b[i]
		switch c {
		case '+':
			c = ' '
		case '%':
			if i+2 >= end || !isHex(b[i+1]) || !isHex(b[i+2]) {
				return i
			}
			c = fromHex(b[i+1])<<4 | fromHex(b[i+2])
			i += 2
		}
		e.scratch = append(e.scratch, c)
	}
	return -1
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func fromHex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// sortPairs sorts by name. Repeats keep their order, except where the rules make them a set.
func (e *encoder) sortPairs(m []entry, n *node) {
	slices.SortFunc(m, func(a, b entry) int {
		if a.key != b.key {
			return cmp.Compare(a.key, b.key)
		}
		// They were laid down in their order.
		return cmp.Or(e.compareNames(a, b), cmp.Compare(a.start, b.start))
	})
	if n == nil {
		return
	}
	for i := range n.members {
		if child := &n.members[i]; child.node.set {
			first, last := e.named(m, []byte(child.name))
			slices.SortFunc(m[first:last], func(a, b entry) int {
				return bytes.Compare(e.out[a.start:a.end], e.out[b.start:b.end])
			})
		}
	}
}

// named returns the range of the sorted entries that have that name.
func (e *encoder) named(m []entry, name []byte) (first, last int) {
	before := func(orEqual int) int {
		return sort.Search(len(m), func(i int) bool {
			x, _ := e.nameAt(m[i].start)
			return bytes.Compare(x, name) >= orEqual
		})
	}
	return before(0), before(1)
}

// addPairs notes the digest of each name with all its values.
func (e *encoder) addPairs(kind PartKind, m []entry) {
	if !e.parts.on {
		return
	}
	var digest uint64
	for i, pair := range m {
		digest = e.parts.digest(kind, digest, e.out[pair.start:pair.end])
		if i+1 < len(m) && m[i+1].key == pair.key && e.compareNames(pair, m[i+1]) == 0 {
			continue
		}
		name, _ := e.nameAt(pair.start)
		e.parts.put(kind, name, digest)
		digest = 0
	}
}
