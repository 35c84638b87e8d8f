package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// edge is a way out of a state.
type edge struct {
	from       store.State
	transition string
}

const nothing store.State = "" // no record

// allowed is every transition there is, with where it leads. All others are
// refused and change nothing, with whatever token and at whatever time.
var allowed = map[edge]store.State{
	{nothing, "claim"}:                store.Executing,
	{store.Executing, "claim"}:        store.Executing, // by its own token: the acknowledgement was lost
	{store.Executing, "complete"}:     store.Completed,
	{store.Executing, "mark unknown"}: store.Unknown,
	{store.Executing, "release"}:      nothing,
	{store.Executing, "abandon"}:      store.Unknown,
	{store.Unknown, "complete"}:       store.Completed,
	{store.Unknown, "release"}:        nothing,
	{store.Unknown, resolveCompleted}: store.Completed,
	{store.Unknown, resolveReleased}:  nothing,
	{store.Completed, "expire"}:       store.Expired,
	{store.Expired, "purge"}:          nothing,
}

// What a verifier or an operator decides, by the token of the record as they saw it.
const (
	resolveCompleted = "resolve completed"
	resolveReleased  = "resolve released"
)

func (e edge) isResolve() bool {
	return e.transition == resolveCompleted || e.transition == resolveReleased
}

// attempt is one cell of the table: a record, and somebody who tries to move it.
type attempt struct {
	edge
	own bool // the token that is shown is the record's own
	due bool // the lease, the window and the time to keep are over
}

// permitted reports whether the attempt must succeed, and where it leads.
func (a attempt) permitted() (to store.State, ok bool) {
	to, ok = allowed[a.edge]
	switch a.transition {
	case "claim":
		ok = ok && (a.own || a.from == nothing)
	case "complete", "mark unknown", "release", resolveCompleted, resolveReleased:
		ok = ok && a.own
	case "abandon", "expire", "purge":
		ok = ok && a.due
	}
	return to, ok
}

func (a attempt) String() string {
	token, when := "another's token", "before its time"
	if a.own {
		token = "its own token"
	}
	if a.due {
		when = "its time over"
	}
	return fmt.Sprintf("%s, %s, %s", a.transition, token, when)
}

// transitions makes a story of each state: what moves it, and what does not.
func transitions() []story {
	var stories []story
	for _, from := range append([]store.State{nothing}, store.States...) {
		name := "from " + string(from)
		if from == nothing {
			name = "from no record"
		}
		stories = append(stories, story{name, func(w *world) {
			for _, transition := range []string{
				"claim", "complete", "mark unknown", "release", resolveCompleted, resolveReleased, "abandon", "expire", "purge",
			} {
				for _, own := range []bool{true, false} {
					for _, due := range []bool{true, false} {
						a := attempt{edge{from, transition}, own, due}
						w.Run(a.String(), func(t *testing.T) { w.in(t).attempts(a) })
					}
				}
			}
		}})
	}
	return stories
}

// in is the same world for a part of the story.
func (w *world) in(t *testing.T) *world {
	part := *w
	part.T = t
	return &part
}

// attempts makes the attempt on a record of its own and compares what happens
// with what is allowed.
func (w *world) attempts(a attempt) {
	key := w.Name()
	w.drain() // what earlier attempts left due
	w.given(key, a)
	before := w.record(key)

	took := w.try(key, a)

	after := w.record(key)
	to, permitted := a.permitted()
	require.Equal(w, permitted, took, "permitted, and taken")
	decisions := 0
	if permitted && a.isResolve() {
		decisions = 1
	}
	require.Len(w, w.audit(identity(key)), decisions, "the audit holds what was decided")
	if !permitted {
		w.unchanged(before, after, "what is refused changes nothing")
		return
	}
	if to == nothing {
		require.Nil(w, after)
		return
	}
	require.NotNil(w, after)
	require.Equal(w, to, after.State)
	require.Equal(w, fingerprint(key), after.Fingerprint, "for the record's whole life")
	require.Equal(w, a.tokenAfter(key), after.Token, "for the record's whole life, unless somebody else decides")
}

// given makes the record that the attempt starts from.
func (w *world) given(key string, a attempt) {
	id, ctx := identity(key), w.Context()
	if a.from == nothing {
		return
	}
	right, _, _ := tokensOf(key)
	d := draft(key, right)
	completion := created("given")
	completion.KeepFor = 2 * ample
	if a.due {
		d.Lease, completion.ReplayFor, completion.KeepFor = over, over, time.Millisecond
	}
	if a.from == store.Expired {
		completion.ReplayFor = over
		if !a.due {
			completion.KeepFor = 2 * -over
		}
	}

	won, _, err := w.engine.Claim(ctx, d)
	require.NoError(w, err)
	require.True(w, won)
	switch a.from {
	case store.Completed:
		require.NoError(w, w.engine.Complete(ctx, id, right, completion))
	case store.Unknown:
		require.NoError(w, w.engine.MarkUnknown(ctx, id, right, store.Doubt{Status: 500, Reason: "given"}))
	case store.Expired:
		require.NoError(w, w.engine.Complete(ctx, id, right, completion))
		w.moves(0, w.engine.Abandon, all) // it was completed, though after its lease
		w.moves(1, w.engine.Expire, all)
	}
}

// try makes the attempt and reports whether the engine says that it succeeded.
func (w *world) try(key string, a attempt) bool {
	id, ctx := identity(key), w.Context()
	right, token, decision := tokensOf(key)
	if a.own {
		token = right
	}
	var err error
	switch a.transition {
	case "claim":
		before := w.record(key)
		won, held, err := w.engine.Claim(ctx, draft(key, token))
		require.NoError(w, err)
		if !won {
			w.unchanged(before, held, "a lost claim reads the record")
		}
		return won
	case "complete":
		err = w.engine.Complete(ctx, id, token, created("tried"))
	case "mark unknown":
		err = w.engine.MarkUnknown(ctx, id, token, store.Doubt{Status: 599, Reason: "tried"})
	case "release":
		err = w.engine.Release(ctx, id, token)
	case resolveCompleted:
		err = w.engine.Resolve(ctx, id, token, decision, asCompleted("tried"))
	case resolveReleased:
		err = w.engine.Resolve(ctx, id, token, decision, asNotExecuted)
	default:
		return w.sweeps(a.transition) == 1
	}
	if errors.Is(err, store.ErrNotHeld) {
		return false
	}
	require.NoError(w, err)
	return true
}

func (w *world) sweeps(transition string) int {
	sweep := map[string]sweep{
		"abandon": w.engine.Abandon, "expire": w.engine.Expire, "purge": w.engine.Purge,
	}[transition]
	moved, err := sweep(w.Context(), all)
	require.NoError(w, err)
	return moved
}

func (w *world) drain() {
	for _, transition := range []string{"abandon", "expire", "purge"} {
		w.sweeps(transition)
	}
}

var rightToken, otherToken, decisionToken = tokensOf("any other")

// tokensOf are the tokens of a record that is claimed, of somebody else, and of a
// decision: no two records have the same.
func tokensOf(key string) (right, other, decision store.Token) {
	sum := fingerprint(key).Sum
	right = store.Token(sum[:16])
	other, decision = right, right
	other[15]++
	decision[15]--
	return right, other, decision
}

// tokenAfter is the token of the record after an attempt that succeeded.
func (a attempt) tokenAfter(key string) store.Token {
	right, other, decision := tokensOf(key)
	switch {
	case a.from == nothing && !a.own:
		return other
	case a.isResolve():
		return decision
	}
	return right
}
