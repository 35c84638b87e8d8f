package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-idempotency/caddy-idempotency/internal/stage"
)

// teller plays a scene and prints it. What is not as told ends the scene.
type teller struct {
	ctx   context.Context
	stage *stage.Stage
	run   string // mark of this run, in every key
}

// notAsTold is what ends a scene.
type notAsTold struct{ error }

func (t *teller) tell(play func(*teller)) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case notAsTold:
			err = r.error
		default:
			panic(r)
		}
	}()
	play(t)
	return nil
}

func (t *teller) fail(format string, args ...any) {
	panic(notAsTold{fmt.Errorf(format, args...)})
}

func (t *teller) check(err error) {
	if err != nil {
		t.fail("%w", err)
	}
}

func (t *teller) say(format string, args ...any) { fmt.Printf("     "+format+"\n", args...) }

// request to make an order.
type request struct {
	host  string // of the site; empty for the one that takes every host
	key   string
	body  string
	fault string // that the order service is asked for
}

// reply of the gateway.
type reply struct {
	status int
	header http.Header
	body   []byte
	err    error // there was no answer
}

// slug is the last part of the problem's type; empty for an answer of the order service.
func (r reply) slug() string {
	if r.header.Get("Content-Type") != "application/problem+json" {
		return ""
	}
	var problem struct{ Type string }
	_ = json.Unmarshal(r.body, &problem)
	_, slug, _ := strings.Cut(problem.Type, "#")
	return slug
}

// client opens a connection for each request. Go's transport may send a request
// with an Idempotency-Key once more by itself when a connection that it had kept
// dies, and the story is to be told in the order in which it is written.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (t *teller) send(q request) (r reply) {
	hr, err := http.NewRequestWithContext(t.ctx, http.MethodPost, "http://"+t.stage.Address+"/orders", strings.NewReader(q.body))
	t.check(err)
	hr.Host = q.host
	hr.Header.Set("Content-Type", "application/json")
	hr.Header.Set("Idempotency-Key", `"`+q.key+t.run+`"`)
	if q.fault != "" {
		hr.Header.Set("X-Fault", q.fault)
	}
	resp, err := client.Do(hr)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	r = reply{status: resp.StatusCode, header: resp.Header}
	r.body, r.err = io.ReadAll(resp.Body)
	return r
}

func (t *teller) showRequest(q request) {
	fmt.Printf("  -> POST /orders   Idempotency-Key: %q\n     %s\n", q.key+t.run, q.body)
}

func (t *teller) show(r reply) {
	if r.err != nil {
		fmt.Printf("  <- no answer: %v\n", r.err)
		return
	}
	fmt.Printf("  <- %d %s", r.status, http.StatusText(r.status))
	for _, name := range []string{"Location", "Retry-After", "Idempotency-Replayed"} {
		if value := r.header.Get(name); value != "" {
			fmt.Printf("   %s: %s", name, value)
		}
	}
	body := r.body
	var problem struct{ Title, Detail, Resource string }
	if slug := r.slug(); slug != "" && json.Unmarshal(body, &problem) == nil {
		body = []byte(slug + ": " + problem.Title)
		if problem.Detail != "" {
			body = append(body, " ("+problem.Detail+")"...)
		}
		if problem.Resource != "" {
			body = append(body, " [resource: "+problem.Resource+"]"...)
		}
	}
	fmt.Printf("\n     %s\n", bytes.TrimSpace(body))
}

// post sends and shows what comes back.
func (t *teller) post(q request) reply {
	t.showRequest(q)
	r := t.send(q)
	t.show(r)
	return r
}

// postWhile sends again and again, and returns the first answer that is another
// one, and how many came before it.
func (t *teller) postWhile(q request, same func(reply) bool) (r reply, before int) {
	t.showRequest(q)
	for deadline := time.Now().Add(time.Minute); ; before++ {
		if r = t.send(q); r.err != nil || !same(r) {
			return r, before
		}
		if time.Now().After(deadline) {
			t.fail("the answer is still the same after a minute: %d", r.status)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.ctx.Done():
			t.check(t.ctx.Err())
		}
	}
}

// begin sends, and goes on without the answer.
func (t *teller) begin(q request) <-chan reply {
	t.showRequest(q)
	answer := make(chan reply, 1)
	go func() { answer <- t.send(q) }()
	return answer
}

// end shows the answer to what was begun.
func (t *teller) end(answer <-chan reply) reply {
	r := <-answer
	t.show(r)
	return r
}

func (t *teller) endWithoutAnswer(answer <-chan reply) {
	if r := t.end(answer); r.err == nil {
		t.fail("an answer came, status %d: there should be none", r.status)
	}
}

// want compares the answer with the story: its status, and its problem, which is
// one of those that are named.
func (t *teller) want(r reply, status int, slugs ...string) {
	switch {
	case r.err != nil:
		t.fail("no answer: %w", r.err)
	case r.status != status || !slices.Contains(slugs, r.slug()):
		t.fail("the answer is %d %q, and should be %d %q", r.status, r.slug(), status, slugs)
	}
}

func (t *teller) wantReplayed(r reply, replayed bool) {
	if got := r.header.Get("Idempotency-Replayed") == "true"; got != replayed {
		t.fail("replayed is %t, and should be %t", got, replayed)
	}
}

func (t *teller) wantSame(a, b reply) {
	if !bytes.Equal(a.body, b.body) || a.header.Get("Location") != b.header.Get("Location") {
		t.fail("the answers differ:\n%s\n%s", a.body, b.body)
	}
}

// counted shows what the order service counted, and compares it with the story.
func (t *teller) counted(reference string, executions, orders int) {
	var stats struct {
		Executions map[string]int `json:"by_reference"`
		Orders     map[string]int `json:"orders_by_reference"`
	}
	t.orders(http.MethodGet, "/stats", &stats)
	got, made := stats.Executions[reference], stats.Orders[reference]
	fmt.Printf("  == the order service has got %s %s, and made %s of it\n", reference, times(got), plural(made, "order"))
	if got != executions || made != orders {
		t.fail("%s was executed %s and led to %s, and should be %s and %s",
			reference, times(got), plural(made, "order"), times(executions), plural(orders, "order"))
	}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// orders asks the order service itself.
func (t *teller) orders(method, path string, answer any) {
	r, err := http.NewRequestWithContext(t.ctx, method, t.stage.Orders+path, nil)
	t.check(err)
	resp, err := client.Do(r)
	t.check(err)
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 300 {
		t.fail("%s %s of the order service: %s", method, path, resp.Status)
	}
	if answer != nil {
		t.check(json.NewDecoder(resp.Body).Decode(answer))
	}
}

// untilHeld waits until the order service holds n requests, which it tells.
func (t *teller) untilHeld(n int) {
	t.orders(http.MethodGet, fmt.Sprintf("/faults/waiting?n=%d", n), nil)
}

// untilOrders waits until the order service has made n orders of the reference.
func (t *teller) untilOrders(reference string, n int) {
	t.orders(http.MethodGet, fmt.Sprintf("/stats?orders=%d&ref=%s", n, reference), nil)
}

func (t *teller) release() { t.orders(http.MethodPost, "/faults/release", nil) }

// untilInside waits until the gateway is busy with n requests, as its metrics tell.
func (t *teller) untilInside(n int) {
	inside := fmt.Sprintf("caddy_http_requests_in_flight{handler=\"subroute\",server=\"srv0\"} %d\n", n)
	t.check(stage.Until(t.ctx, time.Minute, "waiting for requests in flight", func(ctx context.Context) (bool, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.stage.Admin+"/metrics", nil)
		if err != nil {
			return false, err
		}
		resp, err := client.Do(r)
		if err != nil {
			return false, err
		}
		defer func() { _ = resp.Body.Close() }()
		metrics, err := io.ReadAll(resp.Body)
		return strings.Contains(string(metrics), inside), err
	}))
}

func (t *teller) restart() { t.check(t.stage.StartGateway(t.ctx)) }
