package canonical

import (
	"strconv"
	"strings"
)

// segment is one step of a path: a name, which may also be the index of an element, or every element.
type segment struct {
	name  string
	every bool
}

// parsePath reads a path in gjson's notation. What gjson can say but a rule must not (a query or a modifier would make
// the fingerprint depend on more than the place of a value) is refused with the reason.
func parsePath(rule, path string) ([]segment, error) {
	refuse := func(reason, help string) error { return &RuleError{rule, path, reason, help} }
	if path == "" {
		return nil, refuse("the path is empty", `name a member, for example "customer.id"`)
	}
	var (
		segs    []segment
		name    []byte
		literal bool // the segment holds an escaped character, so "#" is a name
	)
	finish := func() error {
		switch {
		case len(name) == 0:
			return refuse("a name is missing between two dots, or at an end", `write "a.b"; a dot within a name is written "\."`)
		case string(name) == "#" && !literal:
			segs = append(segs, segment{every: true})
		default:
			segs = append(segs, segment{name: string(name)})
		}
		name, literal = name[:0], false
		return nil
	}
	for i := 0; i < len(path); i++ {
		switch c := path[i]; c {
		case '\\':
			if i++; i == len(path) {
				return nil, refuse("the path ends in a backslash", `a backslash within a name is written "\\"`)
			}
			name, literal = append(name, path[i]), true
		case '.':
			if err := finish(); err != nil {
				return nil, err
			}
		case '*', '?':
			return nil, refuse("wildcards are not supported",
				`name each member in a rule of its own; a literal character is written "\`+string(c)+`"`)
		case '|':
			return nil, refuse("pipes are not supported", `write "." between names; a literal character is written "\|"`)
		case '@', '!', '{', '[', '(':
			if len(name) == 0 && !literal || c == '(' && string(name) == "#" && !literal {
				return nil, refuse("modifiers, literals, queries and multipaths are not supported",
					`write "#" for every element; a literal character is written "\`+string(c)+`"`)
			}
			name = append(name, c)
		default:
			name = append(name, c)
		}
	}
	if err := finish(); err != nil {
		return nil, err
	}
	return segs, nil
}

// escapeSegment writes a name so that parsePath reads it back.
func escapeSegment(name string) string {
	if name == "#" {
		return `\#`
	}
	if !strings.ContainsAny(name, `.\*?|@!{[(`) {
		return name
	}
	var s strings.Builder
	for _, r := range name {
		if strings.ContainsRune(`.\*?|@!{[(`, r) {
			s.WriteByte('\\')
		}
		s.WriteRune(r)
	}
	return s.String()
}

// index returns the element that the segment names if it is applied to an array.
func (s segment) index() (int, bool) {
	if s.every || s.name == "" || len(s.name) > 9 || s.name[0] == '0' && len(s.name) > 1 {
		return 0, false
	}
	for i := range len(s.name) {
		if s.name[i] < '0' || s.name[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.Atoi(s.name)
	return n, err == nil
}

// covers reports whether every value that q names lies at, or under, a value that p names.
func covers(p, q []segment) bool {
	if len(p) > len(q) {
		return false
	}
	for i := range p {
		if p[i] == q[i] {
			continue
		}
		if _, isIndex := q[i].index(); !(p[i].every && isIndex) {
			return false
		}
	}
	return true
}
