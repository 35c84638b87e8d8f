package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-idempotency/caddy-idempotency/canonical"
	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// problem is one row of the table below.
type problem struct {
	slug   string // the last part of its type, which never changes
	status int
	title  string

	// retryable says that the same request may be sent again with the same key,
	// and may be answered in another way then.
	retryable bool

	outcome outcome
}

// The table of all refusals.
var (
	problemKeyMissing     = problem{"key-missing", 400, "An idempotency key is required", false, outcomeKeyMissing}
	problemKeyInvalid     = problem{"key-invalid", 400, "The idempotency key is not valid", false, outcomeKeyInvalid}
	problemUnidentified   = problem{"caller-unidentified", 403, "It is not known who is asking", false, outcomeUnidentified}
	problemBodyInvalid    = problem{"body-invalid", 400, "The request body is not what this route expects", false, outcomeBodyInvalid}
	problemBodyType       = problem{"body-invalid", 415, "The type of the request body is not supported", false, outcomeBodyInvalid}
	problemBodyTooLarge   = problem{"body-too-large", 413, "The request body is too large", false, outcomeBodyTooLarge}
	problemKeyReused      = problem{"key-reused", 422, "This idempotency key was used for another request", false, outcomeMismatch}
	problemInFlight       = problem{"in-flight", 409, "The request with this key is still being executed", true, outcomeInFlight}
	problemUnknown        = problem{"outcome-unknown", 409, "It is not known whether this request was executed", true, outcomeUnknown}
	problemUnknownTimeout = problem{"outcome-unknown", 504, "The upstream did not answer in time; it is not known whether it executed the request", true, outcomeBecameUnknown}
	problemUnknownGateway = problem{"outcome-unknown", 502, "The upstream did not answer properly; it is not known whether it executed the request", true, outcomeBecameUnknown}
	problemBrokenOff      = problem{"response-incomplete", 502, "The request was answered as original_status says, and its response broke off", false, outcomeBrokenOff}
	problemNotRetained    = problem{"response-not-retained", 409, "The request was answered as original_status says, and its response is not kept", false, outcomeNotRetained}
	problemExpired        = problem{"response-expired", 410, "The request was answered as original_status says, and its response is no longer kept", false, outcomeExpired}
	problemBusinessKey    = problem{"business-key-taken", 409, "The business key in this request belongs to another idempotency key", false, outcomeBusinessKey}
	problemQuota          = problem{"quota-exceeded", 429, "The caller's quota for new requests is used up", true, outcomeQuota}
	problemStore          = problem{"store-unavailable", 503, "The idempotency store gave no usable answer; this attempt was not forwarded", true, outcomeStoreError}
)

// ProblemBase is what the type of each problem begins with.
const ProblemBase = "https://github.com/caddy-idempotency/caddy-idempotency/blob/main/docs/problems.md#"

// Retry-After, in the cases where nothing better is known.
const (
	retryStore   = 2 * time.Second
	retryUnknown = time.Minute
	retryLongest = 10 * time.Second
)

// refusal is an answer of the gateway's own. It is an error so that each step can
// return it.
type refusal struct {
	problem
	detail     string
	retryAfter time.Duration // 0: no header
	record     *store.Record // that the answer is about; may be nil
	differs    []string      // what differs from the request that used the key first
	err        error         // for the log, not for the client
}

func (r *refusal) Error() string {
	if r.err != nil {
		return r.slug + ": " + r.err.Error()
	}
	return r.slug
}

func (r *refusal) Unwrap() error { return r.err }

// problemBody is the JSON of a refusal (RFC 9457).
type problemBody struct {
	Type           string   `json:"type"`
	Title          string   `json:"title"`
	Status         int      `json:"status"`
	Detail         string   `json:"detail,omitempty"`
	Retryable      bool     `json:"retryable"`
	OriginalStatus int      `json:"original_status,omitempty"`
	Resource       string   `json:"resource,omitempty"`
	Differs        []string `json:"differs,omitempty"`
}

func (h *Handler) refuse(x *exchange, r *refusal) error {
	x.outcome = r.outcome
	r.log(h.log, x.id)
	return r.write(x.w, h.Policy)
}

// write is the answer, which links to the policy as
// draft-ietf-httpapi-idempotency-key-header-07 asks for, section 2.7.
func (r *refusal) write(w http.ResponseWriter, policy string) error {
	body := problemBody{
		Type: ProblemBase + r.slug, Title: r.title, Status: r.status, Detail: r.detail,
		Retryable: r.retryable, Differs: r.differs,
	}
	if r.record != nil {
		body.OriginalStatus, body.Resource = r.record.Status, r.record.Resource
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding problem: %w", err)
	}
	encoded = append(encoded, '\n') // for who reads it in a terminal
	header := w.Header()
	header.Set("Content-Type", "application/problem+json")
	header.Set("Content-Length", strconv.Itoa(len(encoded)))
	header.Set("Cache-Control", "no-store")
	header.Add("Link", "<"+policy+`>; rel="describedby"`)
	if r.retryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(r.retryAfter.Seconds()))))
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(encoded)
	return nil
}

func refuseKeyMissing(s KeySource) error {
	where := "in the " + s.Header + " request header"
	if s.Body != "" {
		where = "at " + s.Body + " in the body"
	}
	return &refusal{problem: problemKeyMissing, detail: "Send a new key with each new request, and the same key with each retry of it, " + where + "."}
}

func refuseKey(err error) error {
	return &refusal{problem: problemKeyInvalid, detail: sentence(err), err: err}
}

func refuseScope(err error) error {
	return &refusal{problem: problemUnidentified, detail: sentence(err), err: err}
}

func refuseTooLarge(limit int64) error {
	return &refusal{problem: problemBodyTooLarge, detail: fmt.Sprintf("This route takes bodies of up to %d bytes.", limit)}
}

// refuseStore answers for a store that could not prove who holds the key. The
// request was not forwarded.
func refuseStore(err error) error {
	return &refusal{problem: problemStore, retryAfter: retryStore, err: err}
}

// refuseInFlight answers for a record that is executing; nil if it is not at hand.
func refuseInFlight(record *store.Record) error {
	after := time.Second
	if record != nil {
		after = min(max(record.LeaseUntil.Sub(record.Now), time.Second), retryLongest)
	}
	return &refusal{problem: problemInFlight, retryAfter: after}
}

// sentence makes an error's text one for a client.
func sentence(err error) string {
	text := err.Error()
	if text == "" {
		return ""
	}
	if c := text[0]; 'a' <= c && c <= 'z' {
		text = string(c-'a'+'A') + text[1:]
	}
	return text + "."
}

// noBody reports whether a response of this status has none (RFC 9110, section 6.4.1).
func noBody(status int) bool {
	return status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
}

// refuseBody answers for a body that cannot be understood. There is no record of it.
func refuseBody(err error) error {
	r := &refusal{problem: problemBodyInvalid, detail: sentence(err), err: err}
	var body *canonical.BodyError
	if errors.As(err, &body) {
		switch {
		case body.TooLarge():
			r.problem = problemBodyTooLarge
		case body.Unsupported():
			r.problem = problemBodyType
		}
	}
	return r
}
