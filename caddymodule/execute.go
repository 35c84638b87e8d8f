package caddymodule

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// DefaultUpstreamTimeout of a route.
const DefaultUpstreamTimeout = 30 * time.Second

// leaseSlack is what a lease allows besides the upstream's time: for the claim to
// be acknowledged, and for the outcome to be written.
const leaseSlack = 15 * time.Second

// HeaderUnsettled marks the answer to a first request whose outcome could not be
// stored yet. It is the upstream's answer all the same, and the key is closed.
const HeaderUnsettled = "Idempotency-Unsettled"

func (h *Handler) lease() time.Duration { return time.Duration(h.UpstreamTimeout) + leaseSlack }

// execute forwards the request for the holder of the claim, settles the record,
// and only then answers.
func (h *Handler) execute(x *exchange, b *backend, claim *store.Claim) error {
	wake := b.waits.executing(x.id)
	defer wake()

	// A process that was stopped for long between the claim and this line no longer
	// knows whether the record is still its own.
	rec := newRecorder(x.w, h.MaxResponseBody)
	// The monotonic clock stands still while a virtual machine is suspended, the
	// wall clock does not.
	if ends := claim.LeaseEnds(); min(time.Until(ends), time.Until(ends.Round(0))) < time.Duration(h.UpstreamTimeout) {
		h.settle(x, b, claim, verdict{fate: fateRelease, reason: "claim took too long"}, rec)
		return refuseStore(context.DeadlineExceeded)
	}

	rec.settle = func() {
		h.settle(x, b, claim, h.rules.judgeLarge(rec.status), rec)
		wake()
	}
	e := h.forward(x, rec)
	if rec.streaming {
		if e.err == nil && e.panicked == nil {
			rec.sendTrailer()
		}
		return passOn(e)
	}
	v := h.rules.judge(e)
	h.settle(x, b, claim, v, rec)
	wake()

	switch {
	case v.pass && (e.err != nil || e.panicked != nil):
		replaceHeader(x.w.Header(), rec.header) // what belongs to the error
		return passOn(e)
	case v.refusal != nil:
		v.refusal.record = &store.Record{Status: rec.status, Resource: h.resource(rec)}
		return v.refusal
	}
	rec.send()
	return nil
}

// passOn ends the request as the next handlers did.
func passOn(e evidence) error {
	if e.panicked != nil {
		panic(e.panicked)
	}
	return e.err
}

// settle makes the outcome durable. If the store does not answer in time, the
// write goes on in the background: the upstream's answer is not to be withheld
// from the client, and the key stays closed until it is done.
func (h *Handler) settle(x *exchange, b *backend, claim *store.Claim, v verdict, rec *recorder) {
	id := x.id // what waits for the store must not hold the request's body
	log := func() *zap.Logger { return naming(h.log, id) }
	var write func(context.Context) error
	size := 0
	switch v.fate {
	case fateStore, fateStoreWithoutBody:
		x.outcome = outcomeFirst
		completion := h.completion(rec, v.fate == fateStore)
		size = sizeOf(completion.Resource, completion.Response)
		write = func(ctx context.Context) error { return claim.Complete(ctx, completion) }
	case fateRelease:
		x.outcome = outcomeReleased
		write = func(ctx context.Context) error {
			err := claim.Release(ctx)
			if err == nil {
				log().Info("key released", zap.String("reason", v.reason))
			}
			return err
		}
	case fateUnknown:
		x.outcome = outcomeBecameUnknown
		log().Warn("outcome unknown", zap.String("reason", v.reason), zap.Int("status", rec.status))
		doubt := store.Doubt{Status: rec.status, Resource: h.resource(rec), Reason: inWords(v.reason)}
		size = sizeOf(doubt.Resource, nil)
		write = func(ctx context.Context) error { return claim.MarkUnknown(ctx, doubt) }
	}
	if b.settle(job{id: id, write: write, size: size, leaseEnds: claim.LeaseEnds(), log: log}) {
		return
	}
	x.outcome = outcomeUnsettled
	x.w.Header().Set(HeaderUnsettled, "true") // for a refusal
	rec.mark(HeaderUnsettled, "true")
}

// inWords is a reason as a database can keep it and a person can read it: a panic may
// say anything.
func inWords(reason string) string {
	const most = 200
	reason = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(reason, "?"))
	if len(reason) > most {
		reason = strings.ToValidUTF8(reason[:most], "") + "…"
	}
	return reason
}

func (h *Handler) completion(rec *recorder, keepBody bool) store.Completion {
	c := store.Completion{
		Status:    rec.status,
		Resource:  h.resource(rec),
		ReplayFor: time.Duration(h.ReplayFor),
		KeepFor:   time.Duration(h.KeepFor),
	}
	if c.Status == 0 {
		c.Status = http.StatusOK // nothing was written
	}
	if keepBody {
		c.Response = h.keeps(rec)
	}
	return c
}

// maxResource in bytes. A longer reference is a mistake of the upstream's.
const maxResource = 2048

// resource is the reference to the business object, if the upstream named one
// that a database can keep.
func (h *Handler) resource(rec *recorder) string {
	resource := rec.head.Get("Location")
	if h.Resource != "" {
		resource = ""
		// Half of a body may hold half of a number, which would be another object's.
		if body := rec.body.Bytes(); rec.whole() && rec.written == int64(len(body)) && gjson.ValidBytes(body) {
			resource = gjson.GetBytes(body, h.Resource).String()
		}
	}
	if len(resource) > maxResource || !printable(resource) {
		return ""
	}
	return resource
}

// judgeLarge is the verdict on a response that is too large to keep, before its
// body is there.
func (s statusRules) judgeLarge(status int) verdict {
	v := s.judgeResponse(evidence{status: status, whole: true})
	if v.fate == fateStore {
		v = verdict{fate: fateStoreWithoutBody, reason: "response too large to keep"}
	}
	return v
}
