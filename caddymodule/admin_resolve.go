package caddymodule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"golang.org/x/net/http/httpguts"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// What an operator may have found out.
const (
	asCompleted   = "completed"
	asNotExecuted = "not-executed"
)

// decisionInput is who decides what, and why.
type decisionInput struct {
	identityInput

	// Attempt that the operator has looked into, as it was listed. A record of a
	// later one is left alone. Optional.
	Attempt string `json:"attempt"`

	By     string `json:"by"`
	Reason string `json:"reason"`
}

// resolveInput is a decision with what a retry is answered from then on.
type resolveInput struct {
	decisionInput
	As string `json:"as"`
	outcomeInput
}

// outcomeInput describes the response that the request had, or should have had.
type outcomeInput struct {
	Status      int    `json:"status"`
	Location    string `json:"location"`
	Resource    string `json:"resource"` // default: the location
	ContentType string `json:"content_type"`
	Body        string `json:"body"`
	BodyBase64  []byte `json:"body_base64"`

	// WithoutResponse keeps status and resource alone. A retry is told so.
	WithoutResponse bool `json:"without_response"`

	ReplayFor caddy.Duration `json:"replay_for"` // default: 24h
	KeepFor   caddy.Duration `json:"keep_for"`   // default: for ever
}

// resolveView is the answer of resolve and release.
type resolveView struct {
	Done   string      `json:"done"`             // "completed" or "released"
	Record *recordView `json:"record,omitempty"` // as it is now; none after a release
	Audit  []decision  `json:"audit"`
}

func adminResolve(d desk, w http.ResponseWriter, r *http.Request) (any, error) {
	var input resolveInput
	if err := readInput(w, r, &input); err != nil {
		return nil, err
	}
	var completion *store.Completion
	switch {
	case input.As == asCompleted:
		var err error
		if completion, err = input.completion(); err != nil {
			return nil, err
		}
	case input.As != asNotExecuted:
		return nil, badRequest("as %q is not a decision: write %s or %s", input.As, asCompleted, asNotExecuted)
	case !input.isEmpty():
		return nil, badRequest("a request that was not executed has no response: leave status, location, resource, content_type, body, replay_for and keep_for out, or write %s", asCompleted)
	}
	return d.decide(r, input.decisionInput, completion)
}

// adminRelease resolves as not executed.
func adminRelease(d desk, w http.ResponseWriter, r *http.Request) (any, error) {
	var input decisionInput
	if err := readInput(w, r, &input); err != nil {
		return nil, err
	}
	return d.decide(r, input, nil)
}

// decide settles an unknown outcome. Somebody else may be faster: then the operator
// is told what they did, and nothing changes.
func (d desk) decide(r *http.Request, input decisionInput, completion *store.Completion) (any, error) {
	id, err := input.identity()
	if err != nil {
		return nil, err
	}
	if err := checkWords("by", input.By, 200, "your name"); err != nil {
		return nil, err
	}
	if err := checkWords("reason", input.Reason, 1000, "how you know, for whoever reads the audit"); err != nil {
		return nil, err
	}
	resolution := store.Resolution{Completion: completion, By: input.By, Reason: input.Reason}

	// An operator who hangs up has decided all the same.
	ctx := context.WithoutCancel(r.Context())
	seen, err := d.lookUp(ctx, id)
	if err == nil {
		err = input.undecided(seen)
	}
	if err != nil {
		return nil, err
	}
	id = seen.record.Identity
	_, err = ask(ctx, d, func(ctx context.Context, s *store.Store) (none struct{}, err error) {
		return none, s.Resolve(ctx, seen.record, resolution)
	})
	now, again := d.lookUp(ctx, id)
	var overtaken *store.OvertakenError
	switch {
	case errors.As(err, &overtaken) && again == nil:
		now.record = overtaken.Record
		return nil, now.notUnknown()
	case err != nil:
		return nil, err
	}
	// It is done, whether or not it could be read again.
	view := resolveView{Done: asCompleted, Audit: now.audit}
	if completion == nil {
		view.Done = released
	} else if now.record != nil {
		view.Record = new(viewRecord(now.record))
	}
	adminLog().Info("an operator decided about an unknown outcome",
		zap.String("done", view.Done), zap.String("by", input.By), zap.String("reason", input.Reason),
		zap.String("tenant", id.Tenant), zap.String("operation", id.Operation), zap.String("key_digest", id.KeyDigest()),
		zap.String("attempt", attemptOf(seen.record)), zap.String("remote", r.RemoteAddr))
	return view, nil
}

// undecided reports, as an error, a record that is not there to be decided about.
func (d decisionInput) undecided(k known) error {
	switch {
	case k.record == nil || k.record.State != store.Unknown:
		return k.notUnknown()
	case d.Attempt != "" && d.Attempt != attemptOf(k.record):
		return &adminError{
			adminProblem: adminOtherAttempt, record: new(viewRecord(k.record)), audit: k.audit,
			text: "the outcome is unknown, of another attempt than the one you looked into: the key was released and used again; look into attempt " + attemptOf(k.record),
		}
	}
	return nil
}

// notUnknown says what became of a record that is not unknown any more.
func (k known) notUnknown() error {
	if k.record == nil {
		return noRecord(k.audit)
	}
	e := &adminError{adminProblem: adminNotUnknown, record: new(viewRecord(k.record)), audit: k.audit}
	switch {
	case k.record.State == store.Executing:
		e.text = "the request is being executed: wait until its outcome is known, or its lease is over at " + k.record.LeaseUntil.UTC().Format(time.RFC3339)
	case len(k.audit) > 0:
		e.text = fmt.Sprintf("the record is %s, it was %s: nothing was changed", k.record.State, k.audit[len(k.audit)-1].sentence())
	default:
		e.text = fmt.Sprintf("the record is %s: nothing was changed", k.record.State)
	}
	return e
}

func (o outcomeInput) isEmpty() bool {
	return o.Status == 0 && o.Location == "" && o.Resource == "" && o.ContentType == "" && o.Body == "" &&
		len(o.BodyBase64) == 0 && !o.WithoutResponse && o.ReplayFor == 0 && o.KeepFor == 0
}

// completion is what a retry is answered from then on.
func (o outcomeInput) completion() (*store.Completion, error) {
	body := o.BodyBase64
	if o.Body != "" {
		body = []byte(o.Body)
	}
	setDefault(&o.Resource, o.Location)
	setDefault(&o.ReplayFor, caddy.Duration(DefaultReplayFor))
	if o.ContentType == "" && json.Valid(body) {
		o.ContentType = "application/json"
	}
	switch {
	case o.Status < 200 || o.Status > 599:
		return nil, badRequest("status %d is not one that a retry could be answered with: write the one the upstream answered, such as 201", o.Status)
	case o.Body != "" && o.BodyBase64 != nil:
		return nil, badRequest("body and body_base64 are both there: leave one")
	case len(body) > 0 && noBody(o.Status):
		return nil, badRequest("a response of status %d has no body: leave it out, or write another status", o.Status)
	case len(body) > 0 && o.ContentType == "":
		return nil, badRequest("content_type is missing, and the body is not JSON: write one such as text/plain")
	case o.WithoutResponse && len(body) > 0:
		return nil, badRequest("there is a body, and without_response: leave one")
	case len(o.Resource) > maxResource || !printable(o.Resource):
		return nil, badRequest("resource is longer than %d bytes, or holds a control character: write one such as /orders/17", maxResource)
	}
	for name, value := range map[string]string{"location": o.Location, "content_type": o.ContentType} {
		if !httpguts.ValidHeaderFieldValue(value) || len(value) > maxResource {
			return nil, badRequest("%s cannot stand in a header: write up to %d bytes without control characters", name, maxResource)
		}
	}
	if err := rangeRetention.check("replay_for", o.ReplayFor); err != nil {
		return nil, badRequest("%v", err)
	}
	if err := rangeRetention.checkSet("keep_for", o.KeepFor); err != nil {
		return nil, badRequest("%v", err)
	}

	c := &store.Completion{Status: o.Status, Resource: o.Resource, ReplayFor: time.Duration(o.ReplayFor), KeepFor: time.Duration(o.KeepFor)}
	if o.WithoutResponse {
		return c, nil
	}
	c.Response = &store.Response{Header: make(http.Header), Body: append([]byte{}, body...)}
	for name, value := range map[string]string{"Location": o.Location, "Content-Type": o.ContentType} {
		if value != "" {
			c.Response.Header.Set(name, value)
		}
	}
	return c, nil
}
