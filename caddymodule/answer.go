package caddymodule

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/encode"

	"github.com/caddy-idempotency/caddy-idempotency/canonical"
	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// HeaderReplayed marks the answer to a retry.
const HeaderReplayed = "Idempotency-Replayed"

// answerFrom answers a request that did not win the claim, from the record that
// did. It reports gone, and answers nothing, when the record was released while
// it waited: then the request goes back to compete.
func (h *Handler) answerFrom(x *exchange, b *backend, held *store.Record, w *wait) (gone bool, err error) {
	for {
		// First of all, and whatever the state: another request's answer, even that
		// there is one, is nobody else's business.
		if err := h.compare(x, held); err != nil {
			return false, err
		}
		switch held.State {
		case store.Completed:
			return false, h.replay(x, held, w.waited)
		case store.Expired:
			return false, &refusal{problem: problemExpired, record: held}
		case store.Unknown:
			if h.verifyFor(x, b, held, w) {
				break // the upstream has been asked: look again
			}
			return false, &refusal{problem: problemUnknown, retryAfter: retryUnknown, record: held}
		case store.Executing:
			switch w.next(x.r.Context(), b.waits.watch(held.Identity)) {
			case waitOver:
				if h.InFlightLocation != "" {
					return false, h.accept(x, held)
				}
				return false, refuseInFlight(held)
			case waitClientGone:
				x.outcome = outcomeClientGone
				return false, nil
			}
		default:
			return false, refuseStore(&store.CorruptError{Detail: "state " + string(held.State)})
		}

		held, err = b.read(x.r.Context(), held.Identity)
		switch {
		case x.r.Context().Err() != nil:
			x.outcome = outcomeClientGone
			return false, nil
		case errors.Is(err, store.ErrNoRecord):
			return true, nil
		case err != nil:
			return false, refuseStore(err)
		}
	}
}

// answerFromHolder answers a request whose natural key belongs to a record of
// another key. That record's answer is shown only to its own actor, for the same
// request, and if the route says so.
func (h *Handler) answerFromHolder(x *exchange, b *backend, holder store.Identity, w *wait) (gone bool, err error) {
	taken := &refusal{problem: problemBusinessKey}
	if h.NaturalKey.OnClash != ClashReplay || holder.Actor != x.id.Actor {
		return false, taken
	}
	held, err := b.read(x.r.Context(), holder)
	switch {
	case errors.Is(err, store.ErrNoRecord):
		return true, nil
	case err != nil:
		return false, refuseStore(err)
	case h.compare(x, held) != nil:
		return false, taken
	}
	return h.answerFrom(x, b, held, w)
}

// compare refuses a key that comes back with another request.
func (h *Handler) compare(x *exchange, held *store.Record) error {
	mismatch := h.canon.Match(canonical.Fingerprint(held.Fingerprint), x.print)
	if mismatch == nil {
		return nil
	}
	return &refusal{problem: problemKeyReused, detail: sentence(mismatch), differs: mismatch.Names(), err: mismatch}
}

// replay shows the stored response: its status, its header lines and its bytes.
func (h *Handler) replay(x *exchange, held *store.Record, waited bool) error {
	x.outcome = outcomeReplayed
	if waited {
		x.outcome = outcomeWaited
	}
	switch {
	case h.Replay == ReplayReference:
		return h.replayReference(x, held)
	case h.Replay == ReplayRefetch:
		return h.replayRefetch(x, held)
	case held.Response == nil:
		return &refusal{problem: problemNotRetained, record: held}
	}
	response := held.Response
	// A coded body, which the upstream sent although it was asked not to, is only
	// for a client that can read it.
	if coding := response.Header.Get("Content-Encoding"); !accepts(x.r, coding) {
		return &refusal{
			problem: problemNotRetained, record: held,
			detail: "The stored response is coded " + strconv.Quote(coding) + ", which this request does not accept.",
		}
	}
	header := x.w.Header()
	for name, lines := range response.Header {
		header[name] = lines
	}
	header.Set(HeaderReplayed, "true")
	if !noBody(held.Status) {
		header.Set("Content-Length", strconv.Itoa(len(response.Body)))
	}
	x.w.WriteHeader(held.Status)
	if len(response.Body) > 0 {
		_, _ = x.w.Write(response.Body) // what goes wrong here is the client's to notice
	}
	return nil
}

// accept answers 202 for a request that is being executed, and says where to ask
// for it: what a route says by `on_in_flight accepted`.
func (h *Handler) accept(x *exchange, record *store.Record) error {
	x.outcome = outcomeInFlight
	repl := x.r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	key := strings.ReplaceAll(url.QueryEscape(x.key), "+", "%20") // in a path as in a query
	location := strings.ReplaceAll(h.InFlightLocation, "{idempotency.key}", key)
	x.w.Header().Set("Location", repl.ReplaceAll(location, ""))
	x.w.Header().Set("Retry-After", "1")
	return writeStatus(x.w, http.StatusAccepted, statusOf(record))
}

// accepts reports whether the client takes each coding of a Content-Encoding.
func accepts(r *http.Request, codings string) bool {
	if codings == "" {
		return true
	}
	accepted := encode.AcceptedEncodings(r, nil)
	for coding := range strings.SplitSeq(codings, ",") {
		if coding = strings.ToLower(strings.TrimSpace(coding)); coding != "identity" && !slices.Contains(accepted, coding) {
			return false
		}
	}
	return true
}
