package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

const (
	verifyParallel = 4

	verifyFirstDelay = 2 * time.Second
	verifyLastDelay  = 5 * time.Minute

	verifiedBy = "verifier"
)

// verifiers of the configuration in force, by operation. A record of an operation
// that no route verifies any more waits for an operator.
type verifiers map[string]*Handler

// hold is for how long a record is taken: nobody else probes before this one
// must have come to an end.
func (h *Handler) hold() time.Duration {
	return time.Duration(h.Verify.Timeout) + 3*h.app.opener.CallTimeout()
}

// verifyForever probes what is due, beside the sweeps: an upstream that is slow to
// answer holds up nothing else.
func (b *backend) verifyForever() {
	for {
		b.verifyDue()
		if !b.pauseBetweenSweeps() {
			return
		}
	}
}

func (b *backend) verifyDue() {
	routes := b.verifiers.Load()
	if routes == nil || len(*routes) == 0 {
		return
	}
	var operations []string
	var hold time.Duration
	for operation, h := range *routes {
		operations = append(operations, operation)
		hold = max(hold, h.hold())
	}
	s := b.store.Load()
	for b.ctx.Err() == nil {
		// A record waits for its turn within its hold, so that no more are taken at a
		// time than are probed at once.
		records, err := s.TakeUnknown(b.ctx, operations, hold, verifyParallel)
		if err != nil && b.ctx.Err() == nil {
			backendLog().Error("taking unknown outcomes", zap.Error(err))
		}
		var probes sync.WaitGroup
		for _, record := range records {
			probes.Go(func() { (*routes)[record.Operation].verify(b.ctx, s, record) })
		}
		probes.Wait()
		if len(records) < verifyParallel {
			return
		}
	}
}

// verify probes a record that was taken, and acts on what it finds. It reports
// whether the record may have changed.
func (h *Handler) verify(ctx context.Context, s *store.Store, record *store.Record) bool {
	v := h.Verify
	log := h.log.With(zap.String("tenant", record.Tenant), zap.String("operation", record.Operation),
		zap.String("key_digest", record.KeyDigest()), zap.Int("attempt", record.Verifications))
	// By the database's clock, and before the probe: what the upstream commits while
	// it is asked must not be missed.
	age := record.Now.Sub(record.SettledAt)

	found, completion, err := findingNothing, (*store.Completion)(nil), errElsewhere
	if h.tellsApart(record) {
		found, completion, err = v.probe(ctx, record, h.MaxResponseBody)
	}
	asked := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.app.opener.CallTimeout())
	defer cancel()
	switch {
	case asked.Err() != nil && err != nil:
		// Nothing was learnt; whoever comes next may try soon.
		h.putOff(ctx, s, record, store.ProbeGap, log)
		return false
	case found == findingExists:
		if !h.keepsResponses() {
			completion.Response = nil
		}
		completion.ReplayFor, completion.KeepFor = time.Duration(h.ReplayFor), time.Duration(h.KeepFor)
		return h.resolve(ctx, s, record, store.Resolution{Completion: completion, By: verifiedBy, Reason: "the object exists"}, log)
	case found == findingAbsent && age >= time.Duration(v.After):
		return h.resolve(ctx, s, record, store.Resolution{By: verifiedBy, Reason: fmt.Sprintf("the object is absent %s after", age.Round(time.Second))}, log)
	case age > time.Duration(v.GiveUp):
		log.Error("outcome stays unknown; it is left to an operator", zap.Duration("age", age), zap.NamedError("last_error", err))
		h.putOff(ctx, s, record, -1, log)
		return false
	}
	delay := verifyDelay(record.Verifications)
	if left := time.Duration(v.After) - age; found == findingAbsent && left > 0 {
		delay = left
	}
	log.Info("outcome is still unknown", zap.Duration("next_probe", delay), zap.NamedError("last_error", err))
	h.putOff(ctx, s, record, delay, log)
	return false
}

// tellsApart reports whether the probe asks for the record's own object. A record of
// the same operation may be of another route or instance, where tenant and actor are
// others; those that the URL leaves out are constants here.
func (h *Handler) tellsApart(record *store.Record) bool {
	v := h.Verify
	return (v.asksBy("tenant") || record.Tenant == h.Tenant) &&
		(v.asksBy("actor") || v.asksBy("natural_key") || record.Actor == h.Actor)
}

var errElsewhere = errors.New("the record is of another route, with a tenant or actor that the probe's URL does not name")

// verifyDelay doubles with each attempt, with jitter.
func verifyDelay(attempts int) time.Duration {
	delay := verifyFirstDelay << min(attempts, 10)
	delay = min(delay, verifyLastDelay)
	return delay/2 + rand.N(delay/2)
}

func (h *Handler) resolve(ctx context.Context, s *store.Store, record *store.Record, r store.Resolution, log *zap.Logger) bool {
	err := s.Resolve(ctx, record, r)
	var overtaken *store.OvertakenError
	switch {
	case err == nil:
		log.Info("unknown outcome verified", zap.String("finding", r.Reason))
	case errors.As(err, &overtaken):
		log.Info("unknown outcome was settled by somebody else meanwhile", zap.Error(err))
	default:
		log.Error("storing what was verified", zap.Error(err)) // due again when the hold is over
		return false
	}
	return true
}

func (h *Handler) putOff(ctx context.Context, s *store.Store, record *store.Record, delay time.Duration, log *zap.Logger) {
	if err := s.PutOff(ctx, record, delay); err != nil {
		log.Error("putting verification off", zap.Error(err))
	}
}

// verifyFor asks the upstream at once, for a client that has come back, within its
// patience. It reports whether the record is to be read again.
func (h *Handler) verifyFor(x *exchange, b *backend, held *store.Record, w *wait) bool {
	left := time.Until(w.until)
	if h.Verify == nil || x.verified || left <= 0 {
		return false
	}
	s := b.store.Load()
	ctx, cancel := context.WithTimeout(x.r.Context(), left)
	defer cancel()
	// A client that goes away ends the probe, and no store call.
	taking, taken := context.WithTimeout(context.WithoutCancel(ctx), min(left, b.timeout))
	defer taken()
	err := s.TakeForProbe(taking, held, h.hold())
	var overtaken *store.OvertakenError
	switch {
	case errors.As(err, &overtaken):
		// Somebody is asking just now, or has just asked, or has settled it: look again,
		// until patience ends.
		return w.next(x.r.Context(), nil) == waitAgain
	case err != nil:
		return false
	}
	x.verified = true
	held.Verifications++
	w.waited = true
	return h.verify(ctx, s, held)
}
