package canonical

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash"
	"slices"
)

// object encodes the members sorted by name. Their encodings are laid down as they come; those of one object that
// turn out not to be in order change places when it closes.
func (e *encoder) object(i, depth int, n *node) int {
	if depth > e.maxDepth {
		return e.tooDeep(i - 1)
	}
	b, open := e.body, i
	start, first := len(e.out), len(e.entries)
	e.out = append(e.out, tagObject)
	if n != nil {
		e.anchor(i-1, n)
	}
	var (
		last    uint64
		sorted  = true
		dropped = false
	)
	i = skipSpace(b, i)
	if i < len(b) && b[i] == '}' {
		i++
	} else {
		for {
			if i >= len(b) {
				return e.fail(i, "it ends within an object")
			}
			if b[i] != '"' {
				return e.fail(i, "the name of a member is expected, in double quotes")
			}
			at := len(e.out)
			var key uint64
			if i, key = e.name(i + 1); i < 0 {
				return i
			}
			if i < len(b) && b[i] <= ' ' {
				i = skipSpace(b, i)
			}
			if i >= len(b) || b[i] != ':' {
				return e.inMember(at, e.fail(i, `":" is expected after the name of a member`))
			}
			if i++; i < len(b) && b[i] <= ' ' {
				i = skipSpace(b, i)
			}
			var rules *node
			if n != nil {
				name, _ := e.nameAt(at)
				rules = n.member(name)
			}
			valueAt, begin := len(e.out), i
			if i = e.value(i, depth, rules); i < 0 {
				return e.inMember(at, i)
			}
			end := len(e.out)
			if n != nil && e.doesNotCount(n, rules, at, begin) {
				e.out, end, dropped = e.out[:valueAt], 0, true
			}
			e.entries = append(e.entries, entry{key, at, end})
			if key <= last && len(e.entries)-first > 1 && sorted {
				sorted = key == last && e.compareNames(e.entries[len(e.entries)-2], e.entries[len(e.entries)-1]) < 0
			}
			last = key

			if i < len(b) && b[i] <= ' ' {
				i = skipSpace(b, i)
			}
			if i >= len(b) {
				return e.fail(i, "it ends within an object")
			}
			if b[i] == ',' {
				if i++; i < len(b) && b[i] <= ' ' {
					i = skipSpace(b, i)
				}
				continue
			}
			if b[i] != '}' {
				return e.inMember(at, e.fail(i, `"," or "}" is expected after a member`))
			}
			i++
			break
		}
	}
	if !sorted {
		e.sortMembers(e.entries[first:])
		if twice := e.repeated(e.entries[first:]); twice >= 0 {
			name, _ := e.nameAt(e.entries[first+twice].start)
			return e.inName(name, e.fail(e.secondOf(open, name), "the name of a member appears twice"))
		}
	}
	if n != nil && len(n.fills) > 0 {
		ok, filled := e.fill(n, first, depth)
		if !ok {
			return -1
		}
		if filled {
			e.sortMembers(e.entries[first:])
			sorted = false
		}
	}
	if depth == 1 && e.parts.on {
		for _, m := range e.entries[first:] {
			if m.end > 0 {
				name, value := e.nameAt(m.start)
				e.parts.add(PartMember, name, e.out[value:m.end])
			}
		}
	}
	e.close(start, first, sorted && !dropped, tagObjectDigest)
	return i
}

// doesNotCount reports whether the member that was just encoded is left out: by an exclude, by the lack of an include,
// or because it is a null that stands for the default.
func (e *encoder) doesNotCount(n, rules *node, at, begin int) bool {
	if rules == nil {
		return n.onlyMembers
	}
	if rules.drop {
		return true
	}
	if len(n.fills) > 0 && e.body[begin] == 'n' {
		name, _ := e.nameAt(at)
		for i := range n.fills {
			if n.fills[i].nullIsOmitted && bytes.Equal(n.fills[i].name, name) {
				return true
			}
		}
	}
	return false
}

// fill adds the defaults of members that are omitted. The entries are sorted.
func (e *encoder) fill(n *node, first, depth int) (ok, filled bool) {
	given := len(e.entries)
	for i := range n.fills {
		f := &n.fills[i]
		name := f.name
		k, found := slices.BinarySearchFunc(e.entries[first:given], name, func(m entry, name []byte) int {
			x, _ := e.nameAt(m.start)
			return bytes.Compare(x, name)
		})
		if found && e.entries[first+k].end > 0 {
			continue
		}
		at := len(e.out)
		e.putName(name)
		// The default is a value like any other: the rules below its path act on it as well.
		body := e.body
		e.body = f.value
		done := e.value(skipSpace(f.value, 0), depth, n.member(name))
		e.body = body
		if done < 0 {
			e.err.Offset = -1
			return false, false
		}
		e.entries = append(e.entries, entry{sortKey(name), at, len(e.out)})
		filled = true
	}
	return true, filled
}

// close ends the object, set or form whose members are entries[first:], in their order. inPlace says that they lie in
// this order already, with nothing between them that does not count.
func (e *encoder) close(start, first int, inPlace bool, digest byte) {
	tag := e.out[start]
	end := byte(0)
	if tag == tagSet {
		end = tagSetEnd
	}
	members := e.entries[first:]
	e.entries = e.entries[:first]
	if inPlace {
		e.out = append(e.out, end)
		if len(e.out)-start > e.limit {
			running := e.takeHash()
			running.Write(e.out[start:])
			e.collapse(start, digest, running)
		}
		return
	}
	size := 2
	for i := range members {
		if m := &members[i]; m.end > 0 {
			size += m.end - m.start
		}
	}
	var running hash.Hash
	if size > e.limit {
		running = e.takeHash()
	}
	if running == nil {
		e.reorder(start, members, size)
		e.out = append(e.out, end)
		return
	}
	e.spill = append(e.spill[:0], tag)
	for _, m := range members {
		if m.end == 0 {
			continue
		}
		e.spill = append(e.spill, e.out[m.start:m.end]...)
		if len(e.spill) > collapseOver {
			running.Write(e.spill)
			e.spill = e.spill[:0]
		}
	}
	running.Write(append(e.spill, end))
	e.collapse(start, digest, running)
}

// reorder brings the encodings of the members of a small object into their order. Nearly all are a few bytes long, for
// which copying words beats calling memmove; what is copied too much is overwritten by the next, or cut off.
func (e *encoder) reorder(start int, members []entry, size int) {
	const word = 8
	if cap(e.spill) < size+word {
		e.spill = make([]byte, 0, 2*size+word)
	}
	e.out = slices.Grow(e.out, word)
	from, to := e.out[:cap(e.out)], e.spill[:cap(e.spill)]
	n := 0
	for i := range members {
		m := &members[i]
		if m.end == 0 {
			continue
		}
		length := m.end - m.start
		if length <= 5*word {
			src, dst := from[m.start:m.start+length+word], to[n:n+length+word]
			for k := 0; k < length; k += word {
				binary.LittleEndian.PutUint64(dst[k:], binary.LittleEndian.Uint64(src[k:]))
			}
		} else {
			copy(to[n:], from[m.start:m.end])
		}
		n += length
	}
	e.out = append(e.out[:start+1], to[:n]...)
}

// few is the number of members up to which a simple sort is the fastest. Nearly every object has fewer.
const few = 16

func (e *encoder) sortMembers(m []entry) {
	if len(m) > few {
		e.sortMany(m, 0)
		return
	}
	for i := 1; i < len(m); i++ {
		x := m[i]
		k := i
		for k > 0 && (x.key < m[k-1].key || x.key == m[k-1].key && e.compareNames(x, m[k-1]) < 0) {
			m[k] = m[k-1]
			k--
		}
		m[k] = x
	}
}

// sortMany sorts members whose names have their first bytes in common. It looks at eight bytes of each name at a time,
// the first in which they differ, and then sorts those that are still alike in the same way: a great many names that
// begin alike would otherwise be fetched and compared in full again and again.
func (e *encoder) sortMany(m []entry, common int) {
	// A step is short, so that no name is compared far beyond the byte in which another one differs.
	const step = 32
	first, _ := e.nameAt(m[0].start)
	end := min(len(first), common+step)
	for _, x := range m[1:] {
		name, _ := e.nameAt(x.start)
		n := common
		for n < end && n < len(name) && name[n] == first[n] {
			n++
		}
		end = n
	}
	for i := range m {
		name, _ := e.nameAt(m[i].start)
		m[i].key = sortKey(name[end:])
	}
	slices.SortFunc(m, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	for i := 0; i < len(m); {
		k := i + 1
		for k < len(m) && m[k].key == m[i].key {
			k++
		}
		switch alike := m[i:k]; {
		case len(alike) == 1:
		case len(alike) <= few, len(alike) == len(m) && end < common+step: // one name, or zero bytes at their ends
			slices.SortFunc(alike, e.compareNames)
		default:
			e.sortMany(alike, end)
		}
		i = k
	}
}

// repeated returns the index of a member whose name the one before it has too, or -1.
func (e *encoder) repeated(m []entry) int {
	for i := 1; i < len(m); i++ {
		if m[i].key == m[i-1].key && e.compareNames(m[i], m[i-1]) == 0 {
			return i
		}
	}
	return -1
}

func (e *encoder) inMember(at, i int) int {
	name, _ := e.nameAt(at)
	return e.inName(name, i)
}

func (e *encoder) inName(name []byte, i int) int {
	e.err.under(shownName(name))
	return i
}
