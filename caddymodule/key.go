package caddymodule

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// DefaultKeyHeader is the header of draft-ietf-httpapi-idempotency-key-header.
const DefaultKeyHeader = "Idempotency-Key"

// DefaultMaxKeyLength in bytes.
const DefaultMaxKeyLength = 255

// KeySource says where the client's key is, and what is accepted as one.
type KeySource struct {
	// Header is the name of the request header, such as `X-Client-Reference`.
	// Default: `Idempotency-Key`.
	Header string `json:"header,omitempty"`

	// Body is a gjson path into the JSON body, instead of a header, such as
	// `meta.request_id`. Default: none.
	Body string `json:"body,omitempty"`

	// Optional lets a request without a key pass, unprotected and counted.
	// Default: false, it gets 400.
	Optional bool `json:"optional,omitempty"`

	// Strict accepts only the String of RFC 8941 that the draft demands ("abc"
	// with its quotes). Default: false, the bare token (abc) is the same key.
	Strict bool `json:"strict,omitempty"`

	// MaxLength in bytes, without the quotes, from 1 to 1024. Default: 255.
	MaxLength int `json:"max_length,omitempty"`
}

// checkStrict refuses what could only be a misunderstanding.
func (s KeySource) checkStrict() error {
	if s.Strict && s.Body != "" {
		return errors.New("strict is about the quotes of a header: leave it out for a key in the body")
	}
	return nil
}

// errKeyMissing says that the request has no key.
var errKeyMissing = errors.New("the request has no idempotency key")

// KeyError says why a key is not accepted. Its text never holds the key.
type KeyError struct{ Reason string }

func (e *KeyError) Error() string { return "the idempotency key " + e.Reason }

// fromHeader returns the key of the header lines.
func (s KeySource) fromHeader(header http.Header) (string, error) {
	lines := header[http.CanonicalHeaderKey(s.Header)]
	switch len(lines) {
	case 0:
		return "", errKeyMissing
	case 1:
	default:
		return "", &KeyError{Reason: "is repeated: send one " + s.Header + " line"}
	}
	value := strings.Trim(lines[0], " \t")
	var key string
	var err error
	switch {
	case strings.HasPrefix(value, `"`):
		key, err = parseString(value)
	case s.Strict:
		err = &KeyError{Reason: "is not a quoted string (RFC 8941, section 3.3.3)"}
	default:
		key, err = parseBare(value)
	}
	if err != nil {
		return "", err
	}
	return key, s.checkLength(key)
}

// parseString reads the String of RFC 8941, section 3.3.3. Parameters are
// refused: the draft gives them no meaning, and whoever sends one means something.
func parseString(value string) (string, error) {
	var key strings.Builder
	for i := 1; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"':
			if i != len(value)-1 {
				return "", &KeyError{Reason: "goes on after its closing quote"}
			}
			return key.String(), nil
		case c == '\\':
			i++
			if i == len(value) || value[i] != '"' && value[i] != '\\' {
				return "", &KeyError{Reason: `has a backslash before something other than " or \`}
			}
			key.WriteByte(value[i])
		case c < ' ' || c > '~':
			return "", &KeyError{Reason: "holds a character that is not printable ASCII"}
		default:
			key.WriteByte(c)
		}
	}
	return "", &KeyError{Reason: "has no closing quote"}
}

// parseBare reads a key without quotes: visible ASCII, without the characters by
// which a list, parameters or a badly quoted string would be taken for a key.
func parseBare(value string) (string, error) {
	for i := range len(value) {
		switch c := value[i]; {
		case c <= ' ' || c > '~':
			return "", &KeyError{Reason: "holds a space or a character that is not visible ASCII: put it in double quotes, or choose another"}
		case strings.IndexByte(`",;\`, c) >= 0:
			return "", &KeyError{Reason: `holds one of " , ; \ outside of double quotes`}
		}
	}
	return value, nil
}

// fromBody returns the key at a path of the decoded JSON body, which is well-formed:
// it has a fingerprint.
func (s KeySource) fromBody(body []byte) (string, error) {
	value := gjson.GetBytes(body, s.Body)
	if !value.Exists() || value.Type == gjson.Null {
		return "", errKeyMissing
	}
	if value.Type != gjson.String {
		return "", &KeyError{Reason: "is not a JSON string"}
	}
	key := value.String()
	if !printable(key) {
		return "", &KeyError{Reason: "holds a control character"}
	}
	return key, s.checkLength(key)
}

func (s KeySource) checkLength(key string) error {
	switch {
	case key == "":
		return &KeyError{Reason: "is empty"}
	case len(key) > s.MaxLength:
		return &KeyError{Reason: fmt.Sprintf("is longer than %d bytes", s.MaxLength)}
	}
	return nil
}

// printable reports whether text can be a part of an identity: valid UTF-8 without
// control characters, which no database would keep as they are (NUL) and no
// operator would see.
func printable(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(c rune) bool {
		return c < ' ' || c >= 0x7f && c < 0xa0
	}) < 0
}
