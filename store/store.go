package store

import (
	"context"
	"errors"
	"time"
)

const (
	// claimTries bounds how often a lost claim goes back to the start because the
	// record that it lost to was released in between.
	claimTries = 8

	// callTries bounds how often one engine call is made, if its error says that
	// repeating is worth it. The caller's context bounds the time.
	callTries = 3
)

// Store is the protocol over an Engine: what may follow what, and what to do
// when the database's answer is lost.
type Store struct {
	engine Engine
}

// New returns the protocol over the engine and takes the engine over: Close
// closes it.
func New(engine Engine) *Store { return &Store{engine: engine} }

// Claim competes for the record of the identity. The winner gets a Claim, and
// everyone else the record as it is. An error means that neither is proved: the
// caller must not forward the request (see UnprovedClaimError for ways to tidy up);
// with a *NotWonError in it, not even at the risk of being the second to do so.
//
// The natural key is the business identity in the request, "" for none; if a
// record of another key has it, the error is a *NaturalKeyTakenError. The lease is
// how long the claimant may take, all in all. A claim of a new key that would be one
// more than a quota allows is a *QuotaExceededError.
func (s *Store) Claim(ctx context.Context, id Identity, fp Fingerprint, naturalKey string, lease time.Duration, quotas ...Quota) (*Claim, *Record, error) {
	draft := Draft{Identity: id, Fingerprint: fp, NaturalKey: naturalKey, Token: newToken(), Lease: lease, Quotas: quotas}
	// Taken before the INSERT is sent, so that it is over before the lease that
	// the database counts from the INSERT, as long as clocks run at one speed.
	leaseEnds := time.Now().Add(lease)

	for range claimTries {
		var won bool
		var held *Record
		var notWon *NotWonError // of any try: the next may fail before it can know
		var failed *EngineError
		sent := false
		err := retry(ctx, func() (err error) {
			won, held, err = s.engine.Claim(ctx, draft)
			errors.As(err, &notWon)
			sent = sent || !errors.As(err, &failed) || failed.Failure != Overloaded
			return err
		})
		var taken *NaturalKeyTakenError
		var exceeded *QuotaExceededError
		switch {
		case errors.As(err, &taken), errors.As(err, &exceeded): // proof that nothing was inserted
			return nil, nil, err
		case err != nil:
			if notWon != nil {
				err = notWon
			}
			if !sent {
				return nil, nil, err
			}
			return nil, nil, &UnprovedClaimError{
				Err:   err,
				claim: &Claim{store: s, id: id, token: draft.Token, leaseEnds: leaseEnds},
			}
		case won:
			return &Claim{store: s, id: id, token: draft.Token, leaseEnds: leaseEnds}, nil, nil
		case held != nil:
			return nil, held, nil
		}
	}
	return nil, nil, ErrContended
}

// Read returns the record as it is, or ErrNoRecord.
func (s *Store) Read(ctx context.Context, id Identity) (*Record, error) {
	var record *Record
	err := retry(ctx, func() (err error) {
		record, err = s.engine.Read(ctx, id)
		return err
	})
	return record, err
}

// Abandon, Expire and Purge are what time does to records, in batches; see
// Engine.
func (s *Store) Abandon(ctx context.Context, limit int) (int, error) {
	return s.engine.Abandon(ctx, limit)
}

// Expire clears responses whose replay window is over; see Engine.
func (s *Store) Expire(ctx context.Context, limit int) (int, error) {
	return s.engine.Expire(ctx, limit)
}

// Purge deletes tombstones that were kept long enough; see Engine.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	return s.engine.Purge(ctx, limit)
}

// PurgeQuotas removes what quotas no longer need; see Engine.
func (s *Store) PurgeQuotas(ctx context.Context, limit int) (int, error) {
	return s.engine.PurgeQuotas(ctx, limit)
}

// Stats counts; see Engine.
func (s *Store) Stats(ctx context.Context) (Stats, error) { return s.engine.Stats(ctx) }

// Close closes the engine. No method is called during or after it.
func (s *Store) Close() error { return s.engine.Close() }

// retry repeats a call whose error says that it is worth it. It may be
// repeated even if it took effect: the token makes it idempotent.
func retry(ctx context.Context, call func() error) error {
	var err error
	for range callTries {
		if err = call(); err == nil || !Retryable(err) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// UnprovedClaimError says that the record may or may not have been inserted.
// Nothing was forwarded, and Release may say so.
type UnprovedClaimError struct {
	Err   error
	claim *Claim
}

func (e *UnprovedClaimError) Error() string { return "claim is unproved: " + e.Err.Error() }

func (e *UnprovedClaimError) Unwrap() error { return e.Err }

// Release deletes the record that the claim may have left behind. It is proved
// that the request was never forwarded, since nobody but the caller holds the
// token. Without it, the record becomes Unknown when its lease is over.
func (e *UnprovedClaimError) Release(ctx context.Context) error {
	err := e.claim.Release(ctx)
	var lost *ClaimLostError
	if errors.As(err, &lost) && lost.Record.Token != e.claim.token {
		return nil // most likely there never was a record of this claim
	}
	return err
}

// MarkUnknown returns a write that records that the request was forwarded all the
// same, without the protection of a claim. Where no record was left behind, there
// is nothing to write.
func (e *UnprovedClaimError) MarkUnknown(doubt Doubt) func(context.Context) error {
	return func(ctx context.Context) error {
		err := e.claim.MarkUnknown(ctx, doubt)
		var lost *ClaimLostError
		if errors.As(err, &lost) && (lost.Record == nil || lost.Record.Token != e.claim.token) {
			return nil
		}
		return err
	}
}

// Claim is the right to forward the request, and the duty to settle the record.
// Only Store.Claim makes one.
type Claim struct {
	store     *Store
	id        Identity
	token     Token
	leaseEnds time.Time
}

// LeaseEnds is when the lease is over, at the latest, by this process's
// monotonic clock. Whoever has not begun to forward by then must not begin:
// the record may have been resolved and the key claimed again.
func (c *Claim) LeaseEnds() time.Time { return c.leaseEnds }

// Complete records a trustworthy outcome, also one that comes after the lease
// was over. *ClaimLostError if somebody else has settled the record.
func (c *Claim) Complete(ctx context.Context, completion Completion) error {
	return c.settle(ctx, func() error {
		return c.store.engine.Complete(ctx, c.id, c.token, completion)
	}, Completed, Expired)
}

// MarkUnknown records that no trustworthy outcome is known.
// *ClaimLostError if somebody else has settled the record.
func (c *Claim) MarkUnknown(ctx context.Context, doubt Doubt) error {
	return c.settle(ctx, func() error {
		return c.store.engine.MarkUnknown(ctx, c.id, c.token, doubt)
	}, Unknown)
}

// Release reopens the key. The caller has proof that the upstream received
// nothing, or that its answer means that nothing was done. *ClaimLostError if the
// record may have been settled otherwise.
func (c *Claim) Release(ctx context.Context) error {
	err := c.settle(ctx, func() error {
		return c.store.engine.Release(ctx, c.id, c.token)
	})
	var lost *ClaimLostError
	switch {
	case !errors.As(err, &lost):
		return err
	case lost.Record == nil:
		return nil // gone is what was wanted
	case lost.Record.Token == c.token, lost.Record.State == Completed, lost.Record.State == Expired:
		// With another token it may be this very record, which somebody has resolved
		// as executed: the claimant, who knows better, must be told.
		return err
	}
	return nil // the key was released, and claimed afresh
}

// settle makes a transition of this claim. Where the engine says that the token
// holds nothing to move, the record itself says why: an earlier try of the same
// transition whose acknowledgement was lost is success.
func (c *Claim) settle(ctx context.Context, transition func() error, done ...State) error {
	err := retry(ctx, transition)
	if !errors.Is(err, ErrNotHeld) {
		return err
	}
	record, err := c.store.Read(ctx, c.id)
	switch {
	case errors.Is(err, ErrNoRecord):
		return &ClaimLostError{}
	case err != nil:
		return err
	}
	if record.Token == c.token {
		for _, state := range done {
			if record.State == state {
				return nil
			}
		}
	}
	return &ClaimLostError{Record: record}
}
