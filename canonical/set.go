package canonical

import (
	"bytes"
	"cmp"
	"slices"
)

// setOf encodes an array whose order does not count: its elements sorted by their encodings, repeats kept.
func (e *encoder) setOf(i, depth int, n *node) int {
	if depth > e.maxDepth {
		return e.tooDeep(i - 1)
	}
	b := e.body
	start, first := len(e.out), len(e.entries)
	e.out = append(e.out, tagSet)
	e.anchor(i-1, n)
	i = skipSpace(b, i)
	if i < len(b) && b[i] == ']' {
		i++
	} else {
		for k := 0; ; k++ {
			at, each := len(e.out), n.element(k)
			if i = e.value(i, depth, each); i < 0 {
				return e.inElement(k)
			}
			if n.onlyElements && each == nil || each != nil && each.drop {
				e.out = e.out[:at]
			} else {
				e.entries = append(e.entries, entry{sortKey(e.out[at:]), at, len(e.out)})
			}
			i = skipSpace(b, i)
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
	slices.SortFunc(e.entries[first:], e.compareWhole)
	e.close(start, first, false, tagSetDigest)
	return i
}

func (e *encoder) compareWhole(a, b entry) int {
	if a.key != b.key {
		return cmp.Compare(a.key, b.key)
	}
	return bytes.Compare(e.out[a.start:a.end], e.out[b.start:b.end])
}
