package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The ways out of Unknown. The holder of the claim may still complete or release
// it (see Claim); everyone else decides about the record as they saw it, by its
// token, and the first one wins.

// Resolution is what a verifier or an operator found out about an unknown outcome.
type Resolution struct {
	// Completion is the outcome if the request was executed; nil if it was not,
	// which reopens the key.
	Completion *Completion

	By     string // who decided: "verifier", or an operator's name
	Reason string // in a few words, for the audit
}

// OvertakenError says that a record is no longer what the caller saw: somebody
// else was faster. Record is what is there now, nil if nothing is.
type OvertakenError struct {
	Record *Record
}

func (e *OvertakenError) Error() string {
	if e.Record == nil {
		return "overtaken: the record is gone"
	}
	return fmt.Sprintf("overtaken: the record is %s", e.Record.State)
}

// NaturalKeyTakenError says that the business identity in the request belongs to
// a record of another key. Nothing was inserted.
type NaturalKeyTakenError struct {
	Holder Identity
}

func (e *NaturalKeyTakenError) Error() string { return "the natural key belongs to another record" }

// Filter chooses records of one state.
type Filter struct {
	State     State
	OlderThan time.Duration // since they entered the state; 0: all
	Tenant    string        // "": all
	Operation string        // "": all
	Limit     int

	// After is the last record of the page before; nil for the first page.
	After *Record
}

// AuditEntry is one decision of a verifier or an operator.
type AuditEntry struct {
	Identity
	At     time.Time
	By     string
	From   State
	To     State // "" if the record was released
	Status int
	Reason string
}

// Resolve settles a record that was read as Unknown, and writes the decision into
// the audit in the same transaction. The record gets a token of nobody's, so that
// its claimant, if it lives, is told. *OvertakenError if the record is no longer
// the one that was read.
func (s *Store) Resolve(ctx context.Context, record *Record, resolution Resolution) error {
	token := newToken()
	err := retry(ctx, func() error {
		return s.engine.Resolve(ctx, record.Identity, record.Token, token, resolution)
	})
	if !errors.Is(err, ErrNotHeld) {
		return err
	}
	return s.overtaken(ctx, record.Identity)
}

// overtaken returns what is there now, as an error.
func (s *Store) overtaken(ctx context.Context, id Identity) error {
	now, err := s.Read(ctx, id)
	if err != nil && !errors.Is(err, ErrNoRecord) {
		return err
	}
	return &OvertakenError{Record: now}
}

// TakeUnknown takes unknown outcomes of the operations that are due for
// verification; nobody else gets them until hold is over. See Engine.
func (s *Store) TakeUnknown(ctx context.Context, operations []string, hold time.Duration, limit int) ([]*Record, error) {
	return s.engine.TakeUnknown(ctx, operations, hold, limit)
}

// TakeForProbe takes one unknown outcome for verification at once, due or not.
// *OvertakenError if it is no longer the one that was read, or if somebody is
// verifying it just now.
func (s *Store) TakeForProbe(ctx context.Context, record *Record, hold time.Duration) error {
	err := s.engine.TakeForProbe(ctx, record.Identity, record.Token, hold)
	if errors.Is(err, ErrNotHeld) {
		return s.overtaken(ctx, record.Identity)
	}
	return err
}

// ProbeGap is the least pause between two probes of a record that found nothing,
// however many clients come back for it.
const ProbeGap = time.Second

// PutOff gives a record back that was taken for verification, to be due again
// after the delay; a negative delay gives it up for good.
func (s *Store) PutOff(ctx context.Context, record *Record, delay time.Duration) error {
	err := s.engine.PutOff(ctx, record.Identity, record.Token, delay)
	if errors.Is(err, ErrNotHeld) {
		return nil // somebody has settled it
	}
	return err
}

// List returns records without their responses; see Engine.
func (s *Store) List(ctx context.Context, filter Filter) ([]*Record, error) {
	return s.engine.List(ctx, filter)
}

// Audit returns the decisions about one record, the oldest first.
func (s *Store) Audit(ctx context.Context, id Identity) ([]AuditEntry, error) {
	return s.engine.Audit(ctx, id)
}
