package caddymodule

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// recordView is a record as operators see it, in JSON.
type recordView struct {
	Tenant    string `json:"tenant"`
	Actor     string `json:"actor"`
	Operation string `json:"operation"`
	Key       string `json:"key"`
	KeyDigest string `json:"key_digest"` // as the logs name it

	// Attempt tells this use of the key from a later one, after a release.
	Attempt string `json:"attempt"`

	State         store.State `json:"state"`
	Age           int64       `json:"age_seconds"` // in this state, by the store's clock
	Status        int         `json:"status,omitempty"`
	Resource      string      `json:"resource,omitempty"`
	NaturalKey    string      `json:"natural_key,omitempty"`
	Reason        string      `json:"reason,omitempty"`
	Verifications int         `json:"verifications,omitempty"`

	ClaimedAt   time.Time  `json:"claimed_at"`
	LeaseUntil  time.Time  `json:"lease_until"`
	SettledAt   *time.Time `json:"settled_at,omitempty"`
	ReplayUntil *time.Time `json:"replay_until,omitempty"`
}

// responseView is a stored response, in JSON. One of the two bodies is there.
type responseView struct {
	Header     http.Header `json:"header"`
	Body       string      `json:"body,omitempty"`
	BodyBase64 []byte      `json:"body_base64,omitempty"` // if it is not text
}

// decision is an entry of the audit, in JSON.
type decision struct {
	At     time.Time   `json:"at"`
	By     string      `json:"by"`
	From   store.State `json:"from"`
	To     string      `json:"to"` // a state, or "released"
	Status int         `json:"status,omitempty"`
	Reason string      `json:"reason"`
}

// released is where a record goes that is no more.
const released = "released"

// attemptOf names a use of a key. It is a digest, since the token itself is what
// holds the record.
func attemptOf(r *store.Record) string {
	sum := sha256.Sum256(r.Token[:])
	return hex.EncodeToString(sum[:6])
}

func viewRecord(r *store.Record) recordView {
	view := recordView{
		Tenant: r.Tenant, Actor: r.Actor, Operation: r.Operation, Key: r.Key, KeyDigest: r.KeyDigest(),
		Attempt: attemptOf(r), State: r.State, Status: r.Status, Resource: r.Resource,
		NaturalKey: naturalKeyText(r.NaturalKey), Reason: r.Reason, Verifications: r.Verifications,
		ClaimedAt: r.ClaimedAt.UTC(), LeaseUntil: r.LeaseUntil.UTC(),
	}
	since := r.ClaimedAt
	if !r.SettledAt.IsZero() {
		since = r.SettledAt
		view.SettledAt = new(r.SettledAt.UTC())
	}
	if !r.ReplayUntil.IsZero() {
		view.ReplayUntil = new(r.ReplayUntil.UTC())
		if r.State == store.Expired {
			since = r.ReplayUntil
		}
	}
	view.Age = int64(max(r.Now.Sub(since), 0).Seconds())
	return view
}

func viewResponse(r *store.Response) *responseView {
	view := &responseView{Header: r.Header}
	if utf8.Valid(r.Body) {
		view.Body = string(r.Body)
	} else {
		view.BodyBase64 = r.Body
	}
	return view
}

func viewAudit(entries []store.AuditEntry) []decision {
	view := make([]decision, 0, len(entries))
	for _, e := range entries {
		to := string(e.To)
		if to == "" {
			to = released
		}
		view = append(view, decision{At: e.At.UTC(), By: e.By, From: e.From, To: to, Status: e.Status, Reason: e.Reason})
	}
	return view
}

// known is what the store knows of an identity.
type known struct {
	record *store.Record // nil if there is none
	audit  []decision
}

// lookUp reads a record and its audit. The key is the one that is listed, or the
// client's, of which a route may store a digest alone.
func (d desk) lookUp(ctx context.Context, id store.Identity) (known, error) {
	return ask(ctx, d, func(ctx context.Context, s *store.Store) (known, error) {
		k, err := lookUpAs(ctx, s, id)
		if err != nil || k.record != nil || len(k.audit) > 0 || d.app.secret == nil {
			return k, err
		}
		id.Key = d.app.storedKey(StoreKeyDigest, id.Key)
		return lookUpAs(ctx, s, id)
	})
}

func lookUpAs(ctx context.Context, s *store.Store, id store.Identity) (k known, err error) {
	k.record, err = s.Read(ctx, id)
	if err != nil && !errors.Is(err, store.ErrNoRecord) {
		return k, err
	}
	entries, err := s.Audit(ctx, id)
	k.audit = viewAudit(entries)
	return k, err
}

// showView is the answer of show.
type showView struct {
	Record       recordView    `json:"record"`
	ResponseKept bool          `json:"response_kept"`
	Response     *responseView `json:"response,omitempty"` // if it was asked for
	Audit        []decision    `json:"audit"`
}

// showInput names a record. With response, its stored response is shown, which may
// hold what is none of the operators' business.
type showInput struct {
	identityInput
	Response bool `json:"response"`
}

func adminShow(d desk, w http.ResponseWriter, r *http.Request) (any, error) {
	var input showInput
	if err := readInput(w, r, &input); err != nil {
		return nil, err
	}
	id, err := input.identity()
	if err != nil {
		return nil, err
	}
	k, err := d.lookUp(r.Context(), id)
	switch {
	case err != nil:
		return nil, err
	case k.record == nil:
		return nil, noRecord(k.audit)
	}
	view := showView{Record: viewRecord(k.record), ResponseKept: k.record.Response != nil, Audit: k.audit}
	if input.Response && view.ResponseKept {
		view.Response = viewResponse(k.record.Response)
	}
	return view, nil
}

// noRecord says what is known of a record that is not there.
func noRecord(audit []decision) error {
	e := &adminError{adminProblem: adminNoRecord, audit: audit}
	if len(audit) == 0 {
		e.text = "there is no record of this tenant, actor, operation and key: the request never arrived or was refused, its key was released, or it was forgotten after keep_for; write all four as they are listed"
	} else {
		last := audit[len(audit)-1]
		e.text = "there is no record any more: " + last.sentence() + "; a retry is executed"
	}
	return e
}

func (d decision) sentence() string {
	return d.To + " by " + d.By + " at " + d.At.Format(time.RFC3339) + " (" + d.Reason + ")"
}
