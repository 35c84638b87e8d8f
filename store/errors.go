package store

import (
	"errors"
	"fmt"
)

var (
	// ErrNoRecord says that there is no record of that identity.
	ErrNoRecord = errors.New("no record")

	// ErrNotHeld is an engine's way to say that a guarded transition found no
	// row: the token does not hold the record in a state that allows it.
	ErrNotHeld = errors.New("record is not held by this token")

	// ErrContended says that the claim was lost and the record gone again, more
	// often than is worth trying.
	ErrContended = errors.New("record was claimed and released again by others too often")
)

// ClaimLostError says that a claimant no longer holds its record: somebody else
// has settled it. Record is what is there now, nil if nothing is.
type ClaimLostError struct {
	Record *Record
}

func (e *ClaimLostError) Error() string {
	if e.Record == nil {
		return "claim lost: the record is gone"
	}
	return fmt.Sprintf("claim lost: the record is %s", e.Record.State)
}

// CorruptError says that a record is there and cannot be understood: an unknown
// state, or a value that cannot be read. Its key stays closed.
type CorruptError struct {
	Detail string
	Err    error
}

func (e *CorruptError) Error() string {
	if e.Err == nil {
		return "unreadable record: " + e.Detail
	}
	return fmt.Sprintf("unreadable record: %s: %v", e.Detail, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// NotWonError says that a claim has been decided against, and that the database
// failed before it could tell by what: the key is taken, or a quota used up.
// Forwarding the request all the same could be a second execution.
type NotWonError struct {
	Err error
}

func (e *NotWonError) Error() string {
	return "claim is not won, and why could not be read: " + e.Err.Error()
}

func (e *NotWonError) Unwrap() error { return e.Err }

// Failure classifies what went wrong in the database.
type Failure int

const (
	// Unavailable: the database cannot be reached, refuses to serve, or did not
	// answer in time. Whether the statement took effect may be unknown.
	Unavailable Failure = iota

	// Busy: a lock was not granted in time. The statement had no effect.
	Busy

	// Overloaded: too many calls wait for the database, or it does not answer those
	// before. The statement was never sent.
	Overloaded

	// Conflict: the engine asks to run it again (a serialization failure or a
	// deadlock). The statement had no effect.
	Conflict

	// Rejected: the statement can never work as it is (missing table, no
	// privilege, read-only server, corrupt file). It had no effect.
	Rejected
)

func (f Failure) String() string {
	switch f {
	case Unavailable:
		return "unavailable"
	case Busy:
		return "busy"
	case Overloaded:
		return "overloaded"
	case Conflict:
		return "conflict"
	case Rejected:
		return "rejected"
	}
	return fmt.Sprintf("Failure(%d)", int(f))
}

// EngineError is every error of a database, with its class. Engines judge by
// SQLSTATE or result code, never by text.
type EngineError struct {
	Op      string // what was being done, such as "claiming record"
	Failure Failure
	Err     error
}

func (e *EngineError) Error() string {
	return fmt.Sprintf("%s: %v (%s)", e.Op, e.Err, e.Failure)
}

func (e *EngineError) Unwrap() error { return e.Err }

// Retryable reports whether the same call may work when it is made again at
// once. Every transition may be repeated: the token makes it idempotent.
func (e *EngineError) Retryable() bool {
	return e.Failure == Unavailable || e.Failure == Conflict
}

// Retryable reports whether err is an EngineError that is worth repeating.
func Retryable(err error) bool {
	var engine *EngineError
	return errors.As(err, &engine) && engine.Retryable()
}
