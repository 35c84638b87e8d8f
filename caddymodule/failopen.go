package caddymodule

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// What a route does when the store cannot say who holds a key.
const (
	// OnStoreFailureRefuse answers 503 and forwards nothing.
	OnStoreFailureRefuse = "refuse"

	// OnStoreFailurePass forwards the request without protection.
	OnStoreFailurePass = "pass"
)

// HeaderUnprotected marks the answer to a request that went unprotected.
const HeaderUnprotected = "Idempotency-Unprotected"

func checkOnStoreFailure(what string) error {
	switch what {
	case OnStoreFailureRefuse, OnStoreFailurePass:
		return nil
	}
	return fmt.Errorf("%q is not known: write %s or %s", what, OnStoreFailureRefuse, OnStoreFailurePass)
}

// claimFailed answers for a claim that could not be proved. The record that it may
// have left behind is released if the request is not forwarded, and is of unknown
// outcome if it is.
func (h *Handler) claimFailed(x *exchange, b *backend, err error) error {
	unproved := (*store.UnprovedClaimError)(nil)
	left := errors.As(err, &unproved)
	if h.OnStoreFailure != OnStoreFailurePass || sentBefore(err) || b.has(x.id) {
		if left {
			b.settler.add(job{write: unproved.Release, leaseEnds: time.Now().Add(h.lease()), log: backendLog, claim: true})
		}
		return refuseStore(err)
	}
	if left {
		doubt := store.Doubt{Reason: "forwarded without protection"}
		b.settler.add(job{write: unproved.MarkUnknown(doubt), leaseEnds: time.Now().Add(h.lease()), log: backendLog, claim: true})
	}
	return h.passUnprotected(x, err)
}

// sentBefore reports whether a claim failed with somebody having sent this key before,
// for all that is known: then forwarding it is no risk but a mistake.
func sentBefore(err error) bool {
	var engine *store.EngineError
	var notWon *store.NotWonError
	// A record that is there and cannot be read, or is locked, is no store failure.
	return !errors.As(err, &engine) || engine.Failure == store.Busy || errors.As(err, &notWon)
}

// passUnprotected forwards a request without protection, and says so everywhere.
func (h *Handler) passUnprotected(x *exchange, err error) error {
	x.outcome = outcomeFailedOpen
	h.logger(x).Error("request goes unprotected, since the store does not answer", zap.Error(err))
	r := x.r.Clone(protected(x.r.Context()))
	h.prepare(r, x, &countedBody{ReadCloser: newBody(x.body)})
	x.w.Header().Set(HeaderUnprotected, "true")
	return x.next.ServeHTTP(x.w, r)
}
