package canonical

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"io"
	"slices"
	"strings"
)

// decoded returns the body without its Content-Encoding. A coded body and a plain one of the same content have the same
// fingerprint.
func (p *Policy) decoded(r *Request) ([]byte, error) {
	coding := ""
	for _, line := range r.Header["Content-Encoding"] {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.ToLower(strings.TrimSpace(name))
			if name == "" || name == "identity" {
				continue
			}
			if coding != "" {
				return nil, &BodyError{Kind: UnsupportedCoding, Offset: -1, Reason: "it has more than one content coding"}
			}
			coding = name
		}
	}
	if coding == "" || len(r.Body) == 0 {
		return r.Body, nil
	}
	source := bytes.NewReader(r.Body)
	var (
		plain io.Reader
		err   error
		hint  = 4 * len(r.Body)
	)
	switch coding {
	case "gzip", "x-gzip":
		plain, err = gzip.NewReader(source)
		if n := len(r.Body); n >= 4 {
			hint = int(binary.LittleEndian.Uint32(r.Body[n-4:])) // the length that it claims
		}
	case "deflate":
		// RFC 9110 means the zlib format; many senders leave out its frame, and all readers put up with that.
		if isZlib(r.Body) {
			plain, err = zlib.NewReader(source)
		} else {
			plain = flate.NewReader(source)
		}
	default:
		return nil, &BodyError{Kind: UnsupportedCoding, Offset: -1, Reason: "its content coding is none of gzip, deflate and identity"}
	}
	broken := func(reason string) error {
		return &BodyError{Kind: Malformed, Offset: source.Size() - int64(source.Len()), Reason: reason}
	}
	if err != nil {
		return nil, broken("it is not in the content coding that it says")
	}
	body := make([]byte, 0, min(int64(max(hint, 512)), int64(64*len(r.Body)), p.maxBody)+1)
	for {
		n, err := plain.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if int64(len(body)) > p.maxBody {
			return nil, &BodyError{Kind: TooLarge, Offset: -1, Reason: "it grows beyond the limit when it is decoded"}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, broken("it is not in the content coding that it says")
		}
		if len(body) == cap(body) {
			body = slices.Grow(body, 512)
		}
	}
	if source.Len() > 0 {
		return nil, broken("there is more after the end of the coded body")
	}
	return body, nil
}

func isZlib(b []byte) bool {
	return len(b) >= 2 && b[0]&0x0F == 8 && b[0]>>4 <= 7 && (int(b[0])<<8|int(b[1]))%31 == 0
}
