package canonical

// find follows the steps from the value at i. It returns the position of the value that they lead to, or -1 and whether
// the last step would be a member of an object that is there.
func (e *encoder) find(i int, steps []segment) (value int, parent bool) {
	b := e.body
	for k, step := range steps {
		if i >= len(b) {
			return -1, false
		}
		next := -1
		switch b[i] {
		case '{':
			next = e.findMember(i+1, step.name)
			parent = k == len(steps)-1
		case '[':
			parent = false
			if want, ok := step.index(); ok {
				next = findElement(b, i+1, want)
			}
		default:
			return -1, false
		}
		if next < 0 {
			return -1, parent
		}
		i = next
	}
	if i >= len(b) {
		return -1, false
	}
	return i, true
}

// findMember returns the position of the value of the first member with that name of the object that begins before i.
func (e *encoder) findMember(i int, name string) int {
	for m, ok := nextMember(e.body, i); ok; m, ok = nextMember(e.body, m.next(e.body)) {
		if e.isNamed(m.name, name) {
			return m.value
		}
	}
	return -1
}

// secondOf returns the position of the second member with that name of the object that begins before i.
func (e *encoder) secondOf(i int, name []byte) int {
	wanted, seen := string(name), false
	for m, ok := nextMember(e.body, i); ok; m, ok = nextMember(e.body, m.next(e.body)) {
		if e.isNamed(m.name, wanted) {
			if seen {
				return m.name
			}
			seen = true
		}
	}
	return i
}

// isNamed compares the text whose quote is at i with a name.
func (e *encoder) isNamed(i int, name string) bool {
	b := e.body
	plain, _ := scanText(b, i+1)
	if plain < len(b) && b[plain] == '"' {
		return string(b[i+1:plain]) == name
	}
	err := e.err
	e.scratch = e.scratch[:0]
	next := e.decode(i+1, plain, func() {})
	e.err = err
	return next >= 0 && string(e.scratch) == name
}

// place is where a member's name (its quote) and value begin.
type place struct{ name, value int }

// nextMember reads the member at i, after the brace or comma before it, as far as it can be made out.
func nextMember(b []byte, i int) (m place, ok bool) {
	if i < 0 {
		return m, false
	}
	i = skipSpace(b, i)
	if i >= len(b) || b[i] != '"' {
		return m, false
	}
	m.name = i
	if i = skipText(b, i); i < 0 {
		return m, false
	}
	if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
		return m, false
	}
	m.value = skipSpace(b, i+1)
	return m, true
}

// next returns the position after the comma that follows the member, or -1.
func (m place) next(b []byte) int {
	i := skipValue(b, m.value)
	if i < 0 {
		return -1
	}
	if i = skipSpace(b, i); i >= len(b) || b[i] != ',' {
		return -1
	}
	return i + 1
}

func findElement(b []byte, i, want int) int {
	for k := 0; ; k++ {
		i = skipSpace(b, i)
		if i >= len(b) || b[i] == ']' {
			return -1
		}
		if k == want {
			return i
		}
		if i = skipValue(b, i); i < 0 {
			return -1
		}
		if i = skipSpace(b, i); i >= len(b) || b[i] != ',' {
			return -1
		}
		i++
	}
}

// skipText returns the position after the text whose quote is at i, or -1.
func skipText(b []byte, i int) int {
	for i++; ; {
		i, _ = scanText(b, i)
		if i >= len(b) {
			return -1
		}
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
		i++
	}
}

// skipValue returns the position after the value at i by its texts and brackets alone, or -1.
func skipValue(b []byte, i int) int {
	open := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = skipText(b, i); i < 0 {
				return -1
			}
			if open == 0 {
				return i
			}
			continue
		case '{', '[':
			open++
		case '}', ']':
			if open == 0 {
				return i
			}
			if open--; open == 0 {
				return i + 1
			}
		case ',':
			if open == 0 {
				return i
			}
		}
		i++
	}
	return -1
}
