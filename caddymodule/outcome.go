package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// Rule says what a whole response of some status means.
type Rule string

const (
	// RuleStore: the upstream has decided, and its answer is replayed.
	RuleStore Rule = "store"
	// RuleRelease: the upstream has done nothing, and the key is open again.
	RuleRelease Rule = "release"
	// RuleUnknown: the status proves nothing, and the key stays closed.
	RuleUnknown Rule = "unknown"
)

// defaultRules of every route. A refusal for lack of rights or quota was decided
// before anything was done. A server error may come after a commit; 501 and 505
// are about the method and the protocol, which are looked at first. 499 is what
// Caddy's proxy notes when it gave up, and says nothing of the upstream.
var defaultRules = map[string]Rule{
	"401": RuleRelease, "403": RuleRelease, "407": RuleRelease, "408": RuleRelease, "425": RuleRelease, "429": RuleRelease,
	"499": RuleUnknown,
	"5xx": RuleUnknown, "501": RuleStore, "505": RuleStore,
}

// statusRules are the rules of a route, by status ("503") and class ("5xx"). What
// the route says comes before the defaults, and a status before its class.
type statusRules struct{ route map[string]Rule }

func (s statusRules) of(status int) Rule {
	exact, class := strconv.Itoa(status), strconv.Itoa(status/100)+"xx"
	for _, rules := range []map[string]Rule{s.route, defaultRules} {
		for _, pattern := range []string{exact, class} {
			if rule, ok := rules[pattern]; ok {
				return rule
			}
		}
	}
	return RuleStore
}

// checkRule reports what is wrong with one entry of on_status.
func checkRule(pattern string, rule Rule) error {
	valid := len(pattern) == 3 && pattern[0] >= '2' && pattern[0] <= '5'
	if valid && pattern[1:] != "xx" {
		_, err := strconv.Atoi(pattern)
		valid = err == nil
	}
	switch {
	case !valid:
		return fmt.Errorf("status %q is not one: write a status from 200 to 599, or a class from 2xx to 5xx in small letters", pattern)
	case pattern == strconv.Itoa(statusClientClosed):
		return fmt.Errorf("status %s is what Caddy's proxy notes when it gave up, not an answer of the upstream, and is always unknown: leave it out", pattern)
	}
	switch rule {
	case RuleStore, RuleRelease, RuleUnknown:
		return nil
	}
	return fmt.Errorf("rule %q is not known: write %s, %s or %s", rule, RuleStore, RuleRelease, RuleUnknown)
}

// evidence is what is known after the next handlers returned.
type evidence struct {
	status    int  // of the response head; 0 if none arrived
	whole     bool // the body arrived to its end
	neverSent bool // proved: the upstream has not received a byte
	asked     bool // an upstream was chosen, or a connection asked for
	timedOut  bool // upstream_timeout was over
	err       error
	panicked  any
}

// fate is what becomes of the record.
type fate int

const (
	fateStore fate = iota
	fateStoreWithoutBody
	fateRelease
	fateUnknown
)

// verdict is what the evidence means: for the record, and for the client.
type verdict struct {
	fate   fate
	reason string

	// refusal is what the client gets; nil if it gets the response.
	refusal *refusal

	// pass hands the error or the panic of the next handlers on as it came.
	pass bool
}

// judge reads the evidence. Nothing is released without proof, and a response
// whose head has arrived is an outcome even if its body has not.
func (s statusRules) judge(e evidence) verdict {
	aborted := e.panicked == http.ErrAbortHandler // how Caddy's proxy ends a response that broke off
	switch {
	case e.panicked != nil && !aborted:
		return unknownTo(problemUnknownGateway, fmt.Sprintf("panic: %v", e.panicked), nil)
	case e.status != 0 && e.status != statusClientClosed:
		return s.judgeResponse(e)
	case e.neverSent && e.err != nil:
		return verdict{fate: fateRelease, reason: "never sent", pass: true}
	case e.timedOut: // which some transports report as canceled, and Caddy's proxy as 499
		return unknownTo(problemUnknownTimeout, "upstream timeout", e.err)
	case e.err != nil:
		return unknownTo(problemUnknownGateway, "upstream error", e.err)
	case aborted || e.status == statusClientClosed:
		return unknownTo(problemUnknownGateway, "proxy gave up", nil)
	case e.asked && e.status == 0:
		// Such as a switch of protocols that nobody asked for.
		return unknownTo(problemUnknownGateway, "no answer to the request", nil)
	default:
		return verdict{fate: fateStore} // the next handlers wrote nothing, which is an empty 200
	}
}

// statusClientClosed is what Caddy's proxy writes when its request was canceled.
const statusClientClosed = 499

func (s statusRules) judgeResponse(e evidence) verdict {
	rule := s.of(e.status)
	reason := fmt.Sprintf("status %d", e.status)
	switch {
	case rule == RuleUnknown && e.whole:
		return verdict{fate: fateUnknown, reason: reason}
	case rule == RuleUnknown:
		return unknownTo(problemUnknownGateway, reason+", response broke off", e.err)
	case rule == RuleRelease:
		return verdict{fate: fateRelease, reason: reason, pass: !e.whole}
	case e.whole:
		return verdict{fate: fateStore}
	default:
		return verdict{
			fate:    fateStoreWithoutBody,
			reason:  "response broke off",
			refusal: &refusal{problem: problemBrokenOff, err: e.err},
		}
	}
}

func unknownTo(p problem, reason string, err error) verdict {
	return verdict{
		fate:    fateUnknown,
		reason:  reason,
		refusal: &refusal{problem: p, retryAfter: retryUnknown, err: err},
	}
}

// timedOut tells the end of upstream_timeout from any other.
func timedOut(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}
