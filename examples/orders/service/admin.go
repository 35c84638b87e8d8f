package service

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// This file holds the endpoints that a test steers and asks by. No fault strikes them.

func (s *Service) listExecutions(w http.ResponseWriter, _ *http.Request) {
	jsonReply(http.StatusOK, map[string][]Execution{"executions": s.Executions()}).send(w)
}

func (s *Service) showStats(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	executions, err1 := number(query, "executions", 0)
	orders, err2 := number(query, "orders", 0)
	ctx, cancel, err3 := s.patience(r)
	if err := errors.Join(err1, err2, err3); err != nil {
		errorReply(http.StatusBadRequest, err.Error()).send(w)
		return
	}
	defer cancel()

	stats, err := s.WaitStats(ctx, func(now Stats) bool {
		if query.Has("ref") {
			ref := query.Get("ref")
			return now.ByReference[ref] >= executions && now.OrdersByReference[ref] >= orders
		}
		return now.Executions >= executions && now.Orders >= orders
	})
	jsonReply(inTime(err), stats).send(w)
}

func (s *Service) showFaults(w http.ResponseWriter, _ *http.Request) {
	jsonReply(http.StatusOK, map[string]any{"armed": s.armory.list(), "waiting": s.gate.count()}).send(w)
}

func (s *Service) armFault(w http.ResponseWriter, r *http.Request) {
	var a Arming
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&a)
	if err == nil {
		err = s.Arm(a)
	}
	if err != nil {
		errorReply(http.StatusBadRequest, err.Error()).send(w)
		return
	}
	s.showFaults(w, r)
}

func (s *Service) disarmFaults(w http.ResponseWriter, r *http.Request) {
	s.Disarm()
	s.showFaults(w, r)
}

func (s *Service) awaitHeld(w http.ResponseWriter, r *http.Request) {
	n, err1 := number(r.URL.Query(), "n", 1)
	ctx, cancel, err2 := s.patience(r)
	if err := errors.Join(err1, err2); err != nil {
		errorReply(http.StatusBadRequest, err.Error()).send(w)
		return
	}
	defer cancel()

	err := s.WaitHeld(ctx, n)
	jsonReply(inTime(err), map[string]int{"waiting": s.gate.count()}).send(w)
}

func (s *Service) releaseHeld(w http.ResponseWriter, r *http.Request) {
	n, err := number(r.URL.Query(), "n", 0)
	if err != nil {
		errorReply(http.StatusBadRequest, err.Error()).send(w)
		return
	}
	jsonReply(http.StatusOK, map[string]int{"released": s.Release(n)}).send(w)
}

// patience is how long a request may wait: as long as its client does, the service lives, and timeout allows.
func (s *Service) patience(r *http.Request) (context.Context, context.CancelFunc, error) {
	timeout := 30 * time.Second
	if text := r.URL.Query().Get("timeout"); text != "" {
		var err error
		if timeout, err = duration(text); err != nil {
			return nil, nil, err
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	forget := context.AfterFunc(s.alive, cancel)
	return ctx, func() { forget(); cancel() }, nil
}

func inTime(err error) int {
	if err != nil {
		return http.StatusGatewayTimeout
	}
	return http.StatusOK
}

func number(query url.Values, name string, missing int) (int, error) {
	text := query.Get(name)
	if text == "" {
		return missing, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, refuse(http.StatusBadRequest, "%s is a number, not %q", name, text)
	}
	return n, nil
}
