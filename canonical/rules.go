package canonical

import (
	"encoding/json"
	"fmt"
)

// Rules is a route's configuration of its fingerprint. The zero value works: everything that the fingerprint can
// see counts.
//
// Whatever the order in which they are written, the rules of a body act in this one: defaults are filled in, then
// Include and Exclude choose, then Money is brought to minor units, then Sets are sorted.
//
// A path is written as in gjson: names joined by dots ("customer.id"), "#" for every element of an array
// ("items.#.note"), a number for one element ("items.0.note"), and a backslash before a dot, "#", "*" or any other
// character that is meant literally ("a\.b").
type Rules struct {
	// Version is the route's own semantic version, for example "orders/v2". It is an input of the hash: changing it
	// makes every older key a mismatch, and the mismatch says so. Default "".
	Version string `json:"version,omitempty"`

	// Include lists the members of the body that count; all others do not. Default: everything counts.
	// A value that such a path cannot enter (a text where it needs an object) counts whole.
	Include []string `json:"include,omitempty"`

	// Exclude lists the members of the body that do not count, for example a trace id or the time of sending.
	Exclude []string `json:"exclude,omitempty"`

	// Defaults makes an omitted member equal to one that carries the default explicitly.
	Defaults []Default `json:"defaults,omitempty"`

	// Money names amounts in major units that are brought to minor units by the exponent of their currency.
	Money []Money `json:"money,omitempty"`

	// Sets lists the arrays whose order does not count. How often an element is repeated does count.
	Sets []string `json:"sets,omitempty"`

	// Headers lists the request headers that change the result, for example "Prefer". A header that is absent
	// differs from one that is empty.
	Headers []string `json:"headers,omitempty"`

	// Query says which part of the query counts. Default: all of it.
	Query Query `json:"query,omitzero"`

	// MaxDepth is how deep arrays and objects may be nested. Default 128, at most 10000.
	MaxDepth int `json:"max_depth,omitempty"`

	// MaxBody limits the size in bytes to which a body with a Content-Encoding may grow. Default 1 MiB, at most 1 GiB.
	// The size of a plain body is for its reader to limit.
	MaxBody int64 `json:"max_body,omitempty"`

	// NoMembers leaves out the digests of the members, so that a mismatch cannot say what differs. Default false.
	NoMembers bool `json:"no_members,omitempty"`

	// MemberKey is the secret key of those digests. Without it, whoever reads the store can find a value of few
	// possibilities, such as an amount, by trying them all. Digests under another key say nothing, and are ignored.
	MemberKey []byte `json:"-"`
}

// Default is the value that an omitted member has. The object that the member belongs to must be there: a default
// never makes its parents.
type Default struct {
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`

	// NullIsOmitted says that an explicit null counts as omitted. Default false: null is a value of its own.
	NullIsOmitted bool `json:"null_is_omitted,omitempty"`
}

// Money names an amount in major units ("12.50") and the ISO 4217 code of its currency ("CNY"). Up to where the two
// paths part they are one path, so "items.#.amount" may go with "items.#.currency" or with "currency".
type Money struct {
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
}

// Query says which part of a query counts. The zero value: all of it.
type Query struct {
	// Off leaves the query out.
	Off bool `json:"off,omitempty"`

	// Only lists the names that count, if it is not empty.
	Only []string `json:"only,omitempty"`
}

const (
	defaultMaxDepth = 128
	mostMaxDepth    = 10_000
	defaultMaxBody  = 1 << 20
	mostMaxBody     = 1 << 30
)

// RuleError says which rule of a route cannot work, and what to write instead.
type RuleError struct {
	Rule   string // "include", "exclude", "default", "money", "set", "header", "query", "max_depth", "max_body"
	Path   string // the path or name, as it was written
	Reason string // what is wrong
	Help   string // what to write instead
}

func (e *RuleError) Error() string {
	s := "fingerprint rule " + e.Rule
	if e.Path != "" {
		s += fmt.Sprintf(" %q", e.Path)
	}
	s += ": " + e.Reason
	if e.Help != "" {
		s += "; " + e.Help
	}
	return s
}
