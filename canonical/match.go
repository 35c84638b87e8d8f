package canonical

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// MismatchReason says why a request is not the one that a record was made for.
type MismatchReason uint8

const (
	// Differs: something in the request is different.
	Differs MismatchReason = iota + 1
	// VersionChanged: the route's own version is another now. The request may or may not be the same.
	VersionChanged
	// UnknownAlgorithm: the record was made by an algorithm that this program does not have. In doubt, it is no match.
	UnknownAlgorithm
)

// Mismatch is the refusal of a key that comes back with another request. Its text is meant for the client.
type Mismatch struct {
	Reason      MismatchReason
	Stored, Now string // the route's own version, then and now
	Parts       []Part // what differs, as far as it is known
}

func (m *Mismatch) Error() string {
	switch m.Reason {
	case UnknownAlgorithm:
		return "the key was used before, and it cannot be told whether for this request"
	case VersionChanged:
		return "the key was used under another version of this route's contract (" +
			strconv.Quote(m.Stored) + ", now " + strconv.Quote(m.Now) + ")"
	}
	if len(m.Parts) == 0 {
		return "the key was used for another request"
	}
	return "the key was used for another request; what differs: " + strings.Join(m.Names(), ", ")
}

// Names lists what differs in words: amount, ?page, header Prefer, path.
func (m *Mismatch) Names() []string {
	names := make([]string, len(m.Parts))
	for i, p := range m.Parts {
		names[i] = p.String()
	}
	return names
}

// Match compares the fingerprint that a record keeps with a request's, as this policy has just computed it, by the
// algorithm that made the former. There is one so far. The result is nil if they are the same request; whatever cannot
// be told for sure is a mismatch.
func (p *Policy) Match(stored, now Fingerprint) *Mismatch {
	m := &Mismatch{Reason: Differs, Stored: stored.Version, Now: p.version}
	if stored.Algorithm != Algorithm1 {
		m.Reason = UnknownAlgorithm
		return m
	}
	if stored.Version == now.Version && stored.Sum == now.Sum {
		return nil
	}
	if stored.Version != now.Version {
		m.Reason = VersionChanged
		m.Parts = append(m.Parts, Part{Kind: PartVersion})
	}
	m.Parts = append(m.Parts, differing(readParts(stored.Members, p.key), readParts(now.Members, p.key))...)
	return m
}

// differing lists the parts that are not in both with the same digest. A part that is missing on a side that was too
// large to be kept in full may be among its others, so that is what is named.
func differing(a, b map[Part]uint32) []Part {
	if a == nil || b == nil {
		return nil
	}
	other := Part{Kind: PartOther}
	_, aMore := a[other]
	_, bMore := b[other]
	found := map[Part]bool{}
	compare := func(x, y map[Part]uint32, more bool) {
		for part, digest := range x {
			switch there, ok := y[part]; {
			case ok && there == digest:
			case !ok && more && part.Kind >= PartHeader:
				found[other] = true
			default:
				found[part] = true
			}
		}
	}
	compare(a, b, bMore)
	compare(b, a, aMore)
	parts := make([]Part, 0, len(found))
	for part := range found {
		parts = append(parts, part)
	}
	slices.SortFunc(parts, func(x, y Part) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), strings.Compare(x.Name, y.Name))
	})
	return parts
}
