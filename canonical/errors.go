package canonical

import (
	"strconv"
	"strings"
)

// Kind says what is wrong with a request's body, in the terms in which it is answered.
type Kind uint8

const (
	// Malformed: the body is not what its media type says (400).
	Malformed Kind = iota + 1
	// UnsupportedMedia: a Content-Type that cannot be read, or a character set other than UTF-8 (415).
	UnsupportedMedia
	// UnsupportedCoding: a Content-Encoding other than gzip, deflate and identity (415).
	UnsupportedCoding
	// TooLarge: a body beyond a limit, also one that grows beyond it when decoded (413).
	TooLarge
	// RuleViolated: a value that a rule of the route cannot work on, for example an amount that is no number (400).
	RuleViolated
)

func (k Kind) String() string {
	switch k {
	case Malformed:
		return "malformed"
	case UnsupportedMedia:
		return "unsupported media type"
	case UnsupportedCoding:
		return "unsupported content coding"
	case TooLarge:
		return "too large"
	case RuleViolated:
		return "rule violated"
	}
	return "kind " + strconv.Itoa(int(k))
}

// BodyError is the refusal of a request whose fingerprint cannot be trusted. Its text is meant for the client. It
// holds names of members, shortened, and never a value.
type BodyError struct {
	Kind   Kind
	Offset int64  // the byte of the (decoded) body at which it was noticed; -1 when no byte can be named
	Path   string // the path of the value, as a rule would write it; empty for the body as a whole
	Reason string
}

func (e *BodyError) Error() string {
	var s strings.Builder
	s.WriteString("request body: ")
	s.WriteString(e.Reason)
	if e.Path != "" {
		s.WriteString(", in ")
		s.WriteString(strconv.Quote(e.Path))
	}
	if e.Offset >= 0 {
		s.WriteString(", at byte ")
		s.WriteString(strconv.FormatInt(e.Offset, 10))
	}
	return s.String()
}

// Unsupported reports whether the media type or the content coding is one that cannot be read.
func (e *BodyError) Unsupported() bool {
	return e.Kind == UnsupportedMedia || e.Kind == UnsupportedCoding
}

// TooLarge reports whether the body is larger than allowed.
func (e *BodyError) TooLarge() bool { return e.Kind == TooLarge }

// under puts a name or index before the path of an error that is on its way up.
func (e *BodyError) under(segment string) {
	if e.Path == "" {
		e.Path = segment
	} else {
		e.Path = segment + "." + e.Path
	}
}

// maxShownName is how much of a member's name an error or a mismatch shows.
const maxShownName = 64

// shownName writes a member's name as a path would, shortened, since names come from clients too.
func shownName(name []byte) string {
	s := string(name)
	if len(s) > maxShownName {
		cut := maxShownName
		for cut > 0 && s[cut]&0xC0 == 0x80 { // not within a rune
			cut--
		}
		s = s[:cut] + "…"
	}
	return escapeSegment(s)
}
