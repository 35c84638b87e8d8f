package store

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// forbiddenInValue is what RFC 9110, section 5.5, has a recipient replace by a
// space (or refuse). net/http writes such a value the same way, so the encoded
// form says what the first client saw. A CR LF that were kept would be one more
// header line in every replay.
var forbiddenInValue = strings.NewReplacer("\r", " ", "\n", " ", "\x00", " ")

// Encode returns the response as engines keep it: nil for one that is not kept, and
// never for one that is.
func (r *Response) Encode() (header, body []byte) {
	if r == nil {
		return nil, nil
	}
	if r.Body == nil {
		return EncodeHeader(r.Header), []byte{}
	}
	return EncodeHeader(r.Header), r.Body
}

// EncodeHeader returns the lines of a header as engines keep them: "Name:
// value\r\n", names in byte order and in their own spelling, the lines of one
// name in their own order. Equal headers have equal bytes.
//
// Values are bytes, not text: a header may hold Latin-1 or broken UTF-8, which
// JSON would mangle. CR, LF and NUL become spaces. A name that is not an RFC
// 9110 token is left out, and a name without values leaves nothing, as neither
// ever reaches a client.
//
// The result is never nil: no lines are not the same as no header.
func EncodeHeader(header http.Header) []byte {
	encoded := make([]byte, 0, 512)
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if !httpguts.ValidHeaderFieldName(name) {
			continue
		}
		for _, value := range header[name] {
			encoded = append(encoded, name...)
			encoded = append(encoded, ": "...)
			encoded = append(encoded, forbiddenInValue.Replace(value)...)
			encoded = append(encoded, "\r\n"...)
		}
	}
	return encoded
}

// DecodeHeader returns the header that EncodeHeader was given. It takes nothing
// else: what it cannot read to the last byte must not be replayed in part.
func DecodeHeader(encoded []byte) (http.Header, error) {
	header := make(http.Header)
	for number := 1; len(encoded) > 0; number++ {
		line, rest, ended := bytes.Cut(encoded, []byte("\r\n"))
		if !ended {
			return nil, fmt.Errorf("header line %d does not end in CR LF", number)
		}
		// The first ": " ends the name, since no token holds a colon.
		name, value, parted := bytes.Cut(line, []byte(": "))
		if !parted || !httpguts.ValidHeaderFieldName(string(name)) {
			return nil, fmt.Errorf("header line %d does not begin with a name", number)
		}
		if bytes.ContainsAny(value, "\r\n\x00") {
			return nil, fmt.Errorf("header line %d (%s) holds CR, LF or NUL", number, name)
		}
		// Not Add, which would change the spelling.
		header[string(name)] = append(header[string(name)], string(value))
		encoded = rest
	}
	return header, nil
}
