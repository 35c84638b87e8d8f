package service

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxBody is how large a request's body may be, and what it is decoded to.
const maxBody = 16 << 20

// arrival is a write that arrived whole and is counted.
type arrival struct {
	n         int // the execution's number
	reference string
	clientRef string
	members   members
	asked     string // the faults it asks for
}

// refusal is an answer that commits nothing, as an error.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// arrive reads a write to its end and counts it. A write that is refused for what is in it has been counted all the
// same: it did arrive. With a refusal comes the arrival, as far as it was understood.
func (s *Service) arrive(w http.ResponseWriter, r *http.Request) (arrival, error) {
	body, tooLarge, err := readBody(w, r)
	if err != nil {
		if err := s.ledger.breakOff(); err != nil {
			return arrival{}, err
		}
		return arrival{}, refuse(http.StatusBadRequest, "the body broke off: %v", err)
	}
	a := arrival{clientRef: r.Header.Get("X-Client-Reference")}
	var wrong error
	if tooLarge {
		wrong = refuse(http.StatusRequestEntityTooLarge, "a body has at most %d bytes", maxBody)
	} else {
		a.members, wrong = understand(r.Header, body)
	}
	a.reference = cmp.Or(a.members.text("ref"), a.clientRef, a.members.text("requisition_no"))
	a.asked = askedFaults(r.Header, a.members)

	digest := sha256.Sum256(body)
	a.n, err = s.ledger.arrive(Execution{
		At:             time.Now().UTC(),
		Method:         r.Method,
		Path:           r.URL.Path,
		Reference:      a.reference,
		AcceptEncoding: strings.Join(r.Header.Values("Accept-Encoding"), ", "),
		ContentType:    r.Header.Get("Content-Type"),
		IdempotencyKey: r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Idempotency-Key") != "",
		BodyBytes:      len(body),
		BodySHA256:     hex.EncodeToString(digest[:]),
		Fault:          a.asked,
	})
	return a, cmp.Or(err, wrong)
}

// readBody tells a body that is too large, and so did arrive, from one that broke off.
func readBody(w http.ResponseWriter, r *http.Request) (body []byte, tooLarge bool, err error) {
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var limit *http.MaxBytesError
	if errors.As(err, &limit) {
		return body, true, nil
	}
	return body, false, err
}

// understand finds the members of a body: of a JSON object, whatever the content type says, or of a form. Anything else
// is taken as it is and has none, except that what claims to be JSON must be.
func understand(h http.Header, body []byte) (members, error) {
	body, err := decode(h.Get("Content-Encoding"), body)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, nil
	}
	var m members
	if json.Unmarshal(body, &m) == nil {
		return m, nil
	}
	mediaType, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case mediaType == "application/json" || strings.HasSuffix(mediaType, "+json"):
		if !json.Valid(body) {
			return nil, refuse(http.StatusBadRequest, "the body is not JSON")
		}
	case mediaType == "application/x-www-form-urlencoded":
		return fromForm(string(body))
	}
	return nil, nil
}

func fromForm(body string) (members, error) {
	form, err := url.ParseQuery(body)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "the body is not a form: %v", err)
	}
	m := members{}
	for name := range form {
		if m[name], err = json.Marshal(form.Get(name)); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func decode(coding string, body []byte) ([]byte, error) {
	switch strings.ToLower(coding) {
	case "", "identity":
		return body, nil
	case "gzip":
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "the body is not gzip: %v", err)
		}
		plain, err := io.ReadAll(io.LimitReader(z, maxBody+1))
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "the body is not gzip: %v", err)
		}
		if len(plain) > maxBody {
			return nil, refuse(http.StatusRequestEntityTooLarge, "a body has at most %d bytes", maxBody)
		}
		return plain, nil
	default:
		return nil, refuse(http.StatusUnsupportedMediaType, "the body's coding is %q; gzip and identity are known", coding)
	}
}
