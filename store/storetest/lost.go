package storetest

import (
	"context"
	"errors"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// forgetful is an engine whose acknowledgements are lost: the call takes effect,
// and the caller is told that the database does not answer.
type forgetful struct {
	store.Engine

	mu   sync.Mutex
	lose int          // how many acknowledgements are yet to be lost
	then func() error // what happens in the world before the caller tries again
}

var errNoAnswer = errors.New("the answer was lost on its way")

func (f *forgetful) forget(op string, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lose == 0 || err != nil {
		return err
	}
	f.lose--
	if f.then != nil {
		if err := f.then(); err != nil {
			return err
		}
	}
	return &store.EngineError{Op: op, Failure: store.Unavailable, Err: errNoAnswer}
}

func (f *forgetful) Claim(ctx context.Context, draft store.Draft) (bool, *store.Record, error) {
	won, held, err := f.Engine.Claim(ctx, draft)
	if err = f.forget("claiming record", err); err != nil {
		return false, nil, err
	}
	return won, held, nil
}

func (f *forgetful) Complete(ctx context.Context, id store.Identity, token store.Token, c store.Completion) error {
	return f.forget("completing record", f.Engine.Complete(ctx, id, token, c))
}

func (f *forgetful) MarkUnknown(ctx context.Context, id store.Identity, token store.Token, d store.Doubt) error {
	return f.forget("marking record unknown", f.Engine.MarkUnknown(ctx, id, token, d))
}

func (f *forgetful) Release(ctx context.Context, id store.Identity, token store.Token) error {
	return f.forget("releasing record", f.Engine.Release(ctx, id, token))
}

func (f *forgetful) Resolve(ctx context.Context, id store.Identity, token, newToken store.Token, r store.Resolution) error {
	return f.forget("resolving record", f.Engine.Resolve(ctx, id, token, newToken, r))
}

// forgets puts a forgetful engine between the story and its database.
func (w *world) forgets() *forgetful {
	f := &forgetful{Engine: w.engine}
	w.store = store.New(f)
	return f
}

// always is more often than anybody tries.
const always = 1000

var lostAcknowledgements = []story{
	{"a claim is found again by its token", func(w *world) {
		f := w.forgets()
		f.lose = 2

		claim := w.wins("K1")

		require.Equal(w, store.Executing, w.state("K1"))
		w.completes(claim, created("{}"))
		require.Equal(w, store.Completed, w.loses("K1").State)
	}},

	{"a claim that cannot be proved is not won, and its release reopens the key", func(w *world) {
		f := w.forgets()
		f.lose = always

		claim, held, err := w.store.Claim(w.Context(), identity("K1"), fingerprint("K1"), "", ample)
		f.lose = 0

		require.Nil(w, claim)
		require.Nil(w, held)
		require.ErrorIs(w, err, errNoAnswer)
		require.True(w, store.Retryable(err))
		require.Equal(w, store.Executing, w.state("K1"), "the record is there, and nobody knows")
		var unproved *store.UnprovedClaimError
		require.ErrorAs(w, err, &unproved)
		require.NoError(w, unproved.Release(w.Context()))
		w.wins("K1")
	}},

	{"a claim that cannot be proved becomes unknown when its lease is over", func(w *world) {
		f := w.forgets()
		f.lose = always
		_, _, err := w.store.Claim(w.Context(), identity("K1"), fingerprint("K1"), "", over)
		f.lose = 0
		require.Error(w, err)

		w.moves(1, w.store.Abandon, all)

		require.Equal(w, store.Unknown, w.loses("K1").State)
	}},

	{"a claim that was swept before it was found again is not won", func(w *world) {
		f := w.forgets()
		f.lose = 1
		f.then = func() error {
			_, err := w.engine.Abandon(w.Context(), all)
			return err
		}

		claim, held, err := w.store.Claim(w.Context(), identity("K1"), fingerprint("K1"), "", over)

		require.NoError(w, err)
		require.Nil(w, claim, "somebody may have resolved it already")
		require.Equal(w, store.Unknown, held.State)
	}},

	{"a completion that took effect is a success", func(w *world) {
		f := w.forgets()
		claim := w.wins("K1")
		var first *store.Record
		f.lose, f.then = 1, func() error { first = w.record("K1"); return nil }

		w.completes(claim, created("{}"))

		require.Equal(w, store.Completed, first.State)
		w.unchanged(first, w.record("K1"), "the second try changes nothing")
	}},

	{"a completion that has expired meanwhile is a success", func(w *world) {
		f := w.forgets()
		claim := w.wins("K1")
		f.lose, f.then = 1, func() error { _, err := w.engine.Expire(w.Context(), all); return err }
		completion := created("{}")
		completion.ReplayFor = over

		w.completes(claim, completion)

		require.Equal(w, store.Expired, w.state("K1"))
	}},

	{"a completion that nobody acknowledges is reported and may be repeated", func(w *world) {
		f := w.forgets()
		claim := w.wins("K1")
		f.lose, f.then = 1, func() error { f.Engine = refusing{f.Engine}; return nil }

		require.ErrorIs(w, claim.Complete(w.Context(), created("{}")), errRefused)
		f.Engine = w.engine

		w.completes(claim, created("{}"))
		require.Equal(w, store.Completed, w.state("K1"))
	}},

	{"a late completion whose acknowledgement is lost is a success", func(w *world) {
		f := w.forgets()
		claim := w.winsFor("K1", over)
		w.moves(1, w.engine.Abandon, all)
		f.lose = 1

		w.completes(claim, created("{}"))

		require.Equal(w, store.Completed, w.state("K1"))
	}},

	{"a doubt that took effect is a success", func(w *world) {
		f := w.forgets()
		claim := w.wins("K1")
		f.lose = 2

		require.NoError(w, claim.MarkUnknown(w.Context(), store.Doubt{Status: 500, Reason: "timeout"}))

		require.Equal(w, "timeout", w.record("K1").Reason)
	}},

	{"a release that took effect is a success", func(w *world) {
		f := w.forgets()
		claim := w.wins("K1")
		f.lose = 2

		require.NoError(w, claim.Release(w.Context()))

		require.Nil(w, w.record("K1"))
	}},

	{"a release does not touch who came after it", func(w *world) {
		f := w.forgets()
		claim := w.wins("K1")
		f.lose, f.then = 1, func() error {
			_, _, err := w.engine.Claim(w.Context(), draft("K1", otherToken))
			return err
		}

		require.NoError(w, claim.Release(w.Context()), "its own record is gone")

		require.Equal(w, otherToken, w.record("K1").Token)
	}},

	{"who was settled by another is told what is there", func(w *world) {
		claim := w.wins("K1")
		id, token := identity("K1"), w.record("K1").Token
		require.NoError(w, w.engine.Complete(w.Context(), id, token, created("an operator's")))

		for name, settle := range map[string]func() error{
			"mark unknown": func() error { return claim.MarkUnknown(w.Context(), store.Doubt{Reason: "timeout"}) },
			"release":      func() error { return claim.Release(w.Context()) },
		} {
			var lost *store.ClaimLostError
			require.ErrorAs(w, settle(), &lost, name)
			require.Equal(w, store.Completed, lost.Record.State, name)
		}
		require.Equal(w, "an operator's", string(w.loses("K1").Response.Body))
	}},

	{"who was released by another is told that nothing is there", func(w *world) {
		claim := w.wins("K1")
		require.NoError(w, w.engine.Release(w.Context(), identity("K1"), w.record("K1").Token))

		var lost *store.ClaimLostError
		require.ErrorAs(w, claim.Complete(w.Context(), created("{}")), &lost)
		require.Nil(w, lost.Record)
		require.Nil(w, w.record("K1"), "a completion makes no record")
	}},

	{"a claim lost to one that is released meanwhile is made again", func(w *world) {
		winner := w.wins("K1")
		w.store = store.New(&vanishing{Engine: w.engine, vanish: func() error { return winner.Release(w.Context()) }, times: 1})

		w.wins("K1")
	}},

	{"a claim lost to one released record after the other is given up", func(w *world) {
		w.wins("K1")
		w.store = store.New(&vanishing{Engine: w.engine, vanish: func() error { return nil }, times: always})

		claim, held, err := w.store.Claim(w.Context(), identity("K1"), fingerprint("K1"), "", ample)

		require.ErrorIs(w, err, store.ErrContended)
		require.Nil(w, claim)
		require.Nil(w, held)
	}},
}

// refusing is an engine whose database is down: nothing takes effect.
type refusing struct{ store.Engine }

var errRefused = errors.New("connection refused")

func refuse(op string) error {
	return &store.EngineError{Op: op, Failure: store.Unavailable, Err: errRefused}
}

func (refusing) Complete(context.Context, store.Identity, store.Token, store.Completion) error {
	return refuse("completing record")
}

// refusingClaims is one that is down for claims alone.
type refusingClaims struct{ store.Engine }

func (refusingClaims) Claim(context.Context, store.Draft) (bool, *store.Record, error) {
	return false, nil, refuse("claiming record")
}

func (refusing) Read(context.Context, store.Identity) (*store.Record, error) {
	return nil, refuse("reading record")
}

// vanishing is an engine whose lost claims find the record gone: it is released
// between the INSERT that lost to it and the statement that reads it.
type vanishing struct {
	store.Engine
	vanish func() error
	times  int
}

func (v *vanishing) Claim(ctx context.Context, draft store.Draft) (bool, *store.Record, error) {
	won, held, err := v.Engine.Claim(ctx, draft)
	if err != nil || won || v.times == 0 {
		return won, held, err
	}
	v.times--
	return false, nil, v.vanish()
}
