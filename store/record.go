package store

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// Scope says who is asking, and for what. Its values come from authentication
// results and route constants, never from what a client may choose.
type Scope struct {
	Tenant    string
	Actor     string
	Operation string
}

// Identity names one record.
type Identity struct {
	Scope
	Key string
}

// KeyDigest is what logs and metrics may show of a key: the first 16
// hexadecimal digits of its SHA-256. The key itself is a secret of the client.
func (id Identity) KeyDigest() string {
	sum := sha256.Sum256([]byte(id.Key))
	return hex.EncodeToString(sum[:8])
}

// Fingerprint is opaque to the store: which algorithm made it, the route's own
// version, the hash, and optional short digests that say which members differ.
type Fingerprint struct {
	Algorithm int16
	Version   string
	Sum       [sha256.Size]byte
	Members   []byte
}

// Token is the fence: made before the INSERT of a claim, known to the claimant
// alone, and asked for by every transition out of executing. It is a UUID of
// version 7 (RFC 9562): those that are made one after the other stand side by side
// in an index.
type Token [16]byte

func newToken() Token {
	return Token(uuid.Must(uuid.NewV7())) // fails only if crypto/rand does, which never does
}

// State of a record. Its text is what the database holds.
type State string

const (
	// Executing means that a claimant holds the record and may be forwarding the
	// request at this moment. If the claimant's process dies, the record becomes
	// Unknown when its lease is over.
	Executing State = "executing"

	// Completed means that the upstream's answer is known and durable. It never
	// goes back; a crash changes nothing.
	Completed State = "completed"

	// Unknown means that the request was forwarded, or may have been, and that no
	// trustworthy result is known. The key stays closed. A late completion, a
	// verifier or an operator moves it on; time never does.
	Unknown State = "unknown"

	// Expired means that the replay window is over: a tombstone, which still
	// holds key, fingerprint, status and resource, and no response.
	Expired State = "expired"
)

// States lists every state, in the order of a record's life.
var States = []State{Executing, Completed, Unknown, Expired}

// Known reports whether this version understands the state. One that it does
// not understand is an error to the caller, never "no record".
func (s State) Known() bool {
	switch s {
	case Executing, Completed, Unknown, Expired:
		return true
	}
	return false
}

// Record is one row as it was read.
type Record struct {
	Identity
	Fingerprint Fingerprint
	Token       Token

	// State as the database's clock has it at the time of reading: a completed
	// record whose replay window is over reads as Expired, whether or not the
	// sweeper has cleared it yet.
	State State

	// Status of the upstream's response; 0 where none is known. An unknown
	// outcome may have one (a 500 proves nothing, but is worth telling).
	Status int

	// Response is what may be replayed: nil unless the record is Completed and
	// its body was kept.
	Response *Response

	// Resource refers to the business object, where the upstream named one.
	Resource string

	// NaturalKey is the business identity in the request; "" if the route has none.
	NaturalKey string

	// Verifications is how often the outcome was taken for verification.
	Verifications int

	// Reason says why the outcome is unknown, in a few words for an operator.
	Reason string

	ClaimedAt   time.Time
	LeaseUntil  time.Time
	SettledAt   time.Time // zero while executing
	ReplayUntil time.Time // zero unless it was completed

	// Now is the database's clock at the time of reading.
	Now time.Time
}

// Check reports, as a *CorruptError, a record that does not make sense. Engines
// check what they read: a record that nobody can understand keeps its key closed,
// and half of an answer is not replayed.
func (r *Record) Check() error {
	switch {
	case !r.State.Known():
		return &CorruptError{Detail: "state is not one of this version's"}
	case (r.State == Completed || r.State == Expired) && r.ReplayUntil.IsZero():
		return &CorruptError{Detail: "completed without a replay window"}
	case r.Response != nil && (r.Status < 100 || r.Status > 999):
		// What net/http panics on.
		return &CorruptError{Detail: "response without a status"}
	}
	return nil
}

// Response is what a replay shows, exactly.
type Response struct {
	Header http.Header
	Body   []byte
}

// Completion is an outcome that can be trusted.
type Completion struct {
	Status   int
	Resource string

	// Response to replay; nil if it is not kept (too large, or broken off).
	Response *Response

	// ReplayFor is the replay window, counted from now by the database's clock.
	ReplayFor time.Duration

	// KeepFor is how long the tombstone stays after the replay window;
	// 0 keeps it for ever.
	KeepFor time.Duration
}

// Doubt is an outcome that cannot be trusted, with what is known of it.
type Doubt struct {
	Status   int // of the response that proves nothing; 0 if there was none
	Resource string
	Reason   string
}

// Stats is what the gauges show.
type Stats struct {
	// Records by state. Exact for Executing and Unknown; Completed and Expired
	// may be the engine's estimate where counting would read the whole table.
	Records map[State]int64

	// OldestUnknown is the age of the oldest unknown outcome; 0 if there is none.
	OldestUnknown time.Duration
}
