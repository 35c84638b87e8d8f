package store

import (
	"context"
	"time"
)

// Engine makes each transition atomic in one kind of database. Callers use
// Store, which is the protocol over it: an Engine takes bare tokens, and a Claim
// is what keeps callers from making one up. No two records have the same token.
//
// Every method applies its own deadline on top of the context's, gives back its
// connection before it returns, and reports database errors as *EngineError.
type Engine interface {
	// Claim inserts the record of the draft in state Executing and reports won,
	// with the record as it is now if somebody holds it. A record that carries the
	// draft's own token and is still Executing counts as won: the acknowledgement
	// of an earlier try was lost. Neither won nor held means that the record was
	// released in between. *NaturalKeyTakenError if the draft has a natural key that
	// a record of another key has, in the same tenant and operation. Else
	// *QuotaExceededError if no record of the key is there, and this one would be
	// more than a quota of the draft allows: exact, whoever claims at the same time
	// and on whatever instance. A claim is counted once, with the INSERT that wins; a
	// release does not take it back. *NotWonError around the *EngineError if the
	// database failed when it had answered that the claim is not won.
	Claim(ctx context.Context, draft Draft) (won bool, held *Record, err error)

	// Read returns the record as it is, or ErrNoRecord: every transition that was
	// acknowledged before it began is in it. Where readers and writers meet in
	// the database, it waits for a transition under way, and a transition waits for
	// it.
	Read(ctx context.Context, id Identity) (*Record, error)

	// Complete moves Executing or Unknown to Completed.
	// ErrNotHeld unless the token holds the record in one of them.
	Complete(ctx context.Context, id Identity, token Token, completion Completion) error

	// MarkUnknown moves Executing to Unknown.
	// ErrNotHeld unless the token holds the record in it.
	MarkUnknown(ctx context.Context, id Identity, token Token, doubt Doubt) error

	// Release deletes the record from Executing or Unknown.
	// ErrNotHeld unless the token holds the record in one of them.
	Release(ctx context.Context, id Identity, token Token) error

	// Abandon moves records whose lease is over from Executing to Unknown, at
	// most limit of them, and returns how many it moved. Records locked by
	// others are left for the next time.
	Abandon(ctx context.Context, limit int) (int, error)

	// Expire moves records whose replay window is over from Completed to Expired
	// and clears their responses; limit, result and locks as with Abandon.
	Expire(ctx context.Context, limit int) (int, error)

	// Purge deletes tombstones that have been kept for as long as their route
	// said; limit, result and locks as with Abandon.
	Purge(ctx context.Context, limit int) (int, error)

	// PurgeQuotas removes what quotas no longer need: windows that are over, and what
	// was kept to count records that are no longer executing. Limit and locks as
	// with Abandon; it returns limit if there may be more.
	PurgeQuotas(ctx context.Context, limit int) (int, error)

	// Resolve moves Unknown to Completed, or deletes the record, and adds the
	// decision to the audit, all or nothing. A completed record gets the new token,
	// which names the decision: one that the audit holds already is a success, since
	// the acknowledgement of an earlier try was lost. Else ErrNotHeld unless the
	// record is Unknown and carries the token.
	Resolve(ctx context.Context, id Identity, token, newToken Token, resolution Resolution) error

	// TakeUnknown returns Unknown records of the operations, at most limit of them,
	// whose verification is due and which nobody is verifying, the longest due
	// first, without responses. Nobody else gets them until hold is over; if the
	// taker dies, they are due again then. Every record is due from when it
	// becomes Unknown.
	TakeUnknown(ctx context.Context, operations []string, hold time.Duration, limit int) ([]*Record, error)

	// TakeForProbe takes one record as TakeUnknown does, due or not.
	// ErrNotHeld unless it is Unknown, carries the token, and nobody is verifying it.
	TakeForProbe(ctx context.Context, id Identity, token Token, hold time.Duration) error

	// PutOff ends a verification and makes the record due again after the delay;
	// never again if the delay is negative. Unless the delay is shorter, nobody takes
	// the record before a ProbeGap is over. ErrNotHeld unless it is Unknown and
	// carries the token.
	PutOff(ctx context.Context, id Identity, token Token, delay time.Duration) error

	// List returns records of one state, as Read would tell it, without their
	// responses: Unknown ones the oldest first, all others in the order of their
	// identity.
	List(ctx context.Context, filter Filter) ([]*Record, error)

	// Audit returns the decisions about one record, the oldest first.
	Audit(ctx context.Context, id Identity) ([]AuditEntry, error)

	// Pin inserts a setting, which all programs on the records have to agree on, unless
	// one of its name is there, and returns the one that is there then.
	Pin(ctx context.Context, name string, value []byte) (held []byte, err error)

	// Stats counts.
	Stats(ctx context.Context) (Stats, error)

	// Close gives everything back. No method is called during or after it.
	Close() error
}

// Draft is a claim before it is made.
type Draft struct {
	Identity
	Fingerprint Fingerprint
	Token       Token
	Lease       time.Duration // counted by the database's clock

	// NaturalKey is the business identity in the request, unique in its tenant and
	// operation for as long as the record lives; "" for none.
	NaturalKey string

	// Quotas that the claim has to keep within; nil for none.
	Quotas []Quota
}
