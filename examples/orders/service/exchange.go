package service

import (
	"cmp"
	"errors"
	"net/http"
)

// write runs a counted request: it arrives, and what it asks for happens amid its faults.
func (s *Service) write(w http.ResponseWriter, r *http.Request, work func(arrival) (*reply, error)) {
	x := &exchange{service: s, w: w, r: r}
	a, err := s.arrive(w, r)
	if a.n > 0 { // what did not arrive uses up no fault
		var wrong error
		x.faults, wrong = s.faultsFor(r.Method, a.reference, a.asked)
		err = cmp.Or(err, wrong)
	}
	x.run(func() (*reply, error) {
		if err != nil {
			return nil, err
		}
		return work(a)
	})
}

// read runs a request that is not counted and changes nothing.
func (s *Service) read(w http.ResponseWriter, r *http.Request, work func() (*reply, error)) {
	faults, err := s.faultsFor(r.Method, "", "")
	x := &exchange{service: s, w: w, r: r, faults: faults}
	x.run(func() (*reply, error) {
		if err != nil {
			return nil, err
		}
		return work()
	})
}

// exchange is one request on its way to its answer.
type exchange struct {
	service *Service
	w       http.ResponseWriter
	r       *http.Request
	faults  []fault
	reply   *reply // nil until the work is done, or refused
}

func (x *exchange) run(work func() (*reply, error)) {
	x.strike(beforeCommit)
	if x.reply == nil {
		x.reply = x.outcome(work())
	}
	x.strike(afterCommit)
	x.strike(onAnswer)
	x.reply.send(x.w)
}

func (x *exchange) strike(now moment) {
	for _, f := range x.faults {
		if f.moment == now {
			f.strike(x)
		}
	}
}

// outcome decides in one place what an error looks like from outside.
func (x *exchange) outcome(p *reply, err error) *reply {
	var refused *refusal
	switch {
	case err == nil:
		return p
	case errors.As(err, &refused):
		return errorReply(refused.status, refused.text)
	case errors.Is(err, errNoOrder):
		return errorReply(http.StatusNotFound, errNoOrder.Error())
	case errors.Is(err, errClosed):
		x.abort() // dead while this request was under way: a dead process answers nobody
		return nil
	default:
		return errorReply(http.StatusInternalServerError, err.Error())
	}
}

// abort closes the connection as it is, with whatever has been flushed to it. It does not return.
func (x *exchange) abort() {
	panic(http.ErrAbortHandler)
}
