package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/tidwall/gjson"
	"golang.org/x/net/http/httpguts"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// Verifier is a probe that asks the upstream whether the business object of an
// unknown outcome exists.
type Verifier struct {
	// Method of the probe: `GET` or `HEAD`. Default: `GET`.
	Method string `json:"method,omitempty"`

	// URL of the probe. These placeholders are resolved, and escaped for where they
	// stand: `{idempotency.key}`, `{idempotency.natural_key}`, and the parts of the
	// scope `{idempotency.tenant}`, `{idempotency.actor}`,
	// `{idempotency.operation}`. Required.
	URL string `json:"url,omitempty"`

	// Headers of the probe, by name. Placeholders such as `{env.VERIFY_TOKEN}` are
	// resolved when the route is provisioned.
	Headers map[string]string `json:"headers,omitempty"`

	// Exists says which response means that the object exists. Required.
	Exists Expectation `json:"exists,omitzero"`

	// Absent says which response means that it does not. Default: none does, and
	// the verifier never reopens a key.
	Absent *Expectation `json:"absent,omitempty"`

	// After is how long after an outcome became unknown the upstream can no longer
	// be working on it; only then `absent` is believed. Default: twice
	// upstream_timeout, and 60s at least.
	After caddy.Duration `json:"after,omitempty"`

	// GiveUp is how old an unknown outcome may become before it is left to an
	// operator. Default: 24h.
	GiveUp caddy.Duration `json:"give_up,omitempty"`

	// Timeout of one probe. Default: 10s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// Status that a retry is then answered with. Default: 201.
	Status int `json:"status,omitempty"`

	// Body is a gjson path to what a retry is then answered with in the probe's
	// body. Default: all of it.
	Body string `json:"body,omitempty"`

	// Location that a retry is then answered with. `{body.PATH}` is a value of the
	// probe's body, such as `/orders/{body.orders.0.id}`. Default: the probe's own
	// Location header.
	Location string `json:"location,omitempty"`

	client  *http.Client
	headers http.Header
}

// Expectation is a response that means something.
type Expectation struct {
	// Status of the response, such as 200.
	Status int `json:"status,omitempty"`

	// Path into the body that must be truthy: there, and neither false, null, 0
	// nor empty. It may end in a comparison with a number, such as `orders.#>0`.
	// Default: none.
	Path string `json:"path,omitempty"`
}

// Defaults of a verifier.
const (
	DefaultVerifyAfter   = time.Minute
	DefaultVerifyGiveUp  = 24 * time.Hour
	DefaultVerifyTimeout = 10 * time.Second
	DefaultVerifyStatus  = http.StatusCreated
)

// maxRedirects of a probe, all of which stay on its host.
const maxRedirects = 5

func (v *Verifier) provision(upstreamTimeout time.Duration) error {
	setDefault(&v.Method, http.MethodGet)
	setDefault(&v.After, caddy.Duration(max(2*upstreamTimeout, DefaultVerifyAfter)))
	setDefault(&v.GiveUp, caddy.Duration(DefaultVerifyGiveUp))
	setDefault(&v.Timeout, caddy.Duration(DefaultVerifyTimeout))
	setDefault(&v.Status, DefaultVerifyStatus)
	if err := v.check(); err != nil {
		return err
	}
	repl := caddy.NewReplacer()
	v.headers = make(http.Header)
	for name, template := range v.Headers {
		value, err := repl.ReplaceOrErr(template, true, true)
		if err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
		v.headers.Set(name, value)
	}
	v.client = &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true},
		Timeout:   time.Duration(v.Timeout),
		// The credentials of the probe are for one host, and what another host says
		// is no evidence.
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if r.URL.Host != via[0].URL.Host || r.URL.Scheme != via[0].URL.Scheme || len(via) > maxRedirects {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
	return nil
}

func (v *Verifier) check() error {
	if v.Method != http.MethodGet && v.Method != http.MethodHead {
		return fmt.Errorf("method %q may change something: write GET or HEAD", v.Method)
	}
	target, err := url.Parse(probePlaceholder.ReplaceAllString(v.URL, "x"))
	if err != nil || target.Scheme != "http" && target.Scheme != "https" || target.Host == "" {
		return fmt.Errorf("url %q is not one: write one such as http://orders:8080/orders?client_ref={idempotency.key}", v.URL)
	}
	for _, match := range probePlaceholder.FindAllStringSubmatch(v.URL, -1) {
		if !slices.Contains(probeNames, match[1]) {
			return fmt.Errorf("placeholder {%s} is not known here: write one of {%s}", match[1], strings.Join(probeNames, "}, {"))
		}
	}
	if authority, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(v.URL, "http://"), "https://"), "/"); strings.Contains(authority, "{") {
		return fmt.Errorf("url %q takes its host from a placeholder: write the host as it is", v.URL)
	}
	for name, value := range v.Headers {
		if err := checkHeaderName(name); err != nil {
			return err
		}
		if !httpguts.ValidHeaderFieldValue(value) {
			return fmt.Errorf("value of header %s is not valid: leave control characters out", name)
		}
	}
	if err := v.Exists.check(); err != nil {
		return fmt.Errorf("exists: %w", err)
	}
	if v.Absent != nil {
		if err := v.Absent.check(); err != nil {
			return fmt.Errorf("absent: %w", err)
		}
		if *v.Absent == v.Exists {
			return errors.New("exists and absent are the same: write what tells them apart")
		}
	}
	if v.Status < 200 || v.Status > 299 {
		return fmt.Errorf("status %d is not a success: write 200 to 299", v.Status)
	}
	for _, d := range []struct {
		name  string
		value caddy.Duration
	}{{"after", v.After}, {"give_up", v.GiveUp}, {"timeout", v.Timeout}} {
		if err := rangeRetention.check(d.name, d.value); err != nil {
			return err
		}
	}
	return nil
}

func (e Expectation) check() error {
	if e.Status < 200 || e.Status > 599 {
		return fmt.Errorf("status %d is not one: write a status from 200 to 599, such as 200 or 404", e.Status)
	}
	return nil
}

// finding is what a probe found out.
type finding int

const (
	findingNothing finding = iota // neither
	findingExists
	findingAbsent
)

// probe asks the upstream. An error is no finding.
func (v *Verifier) probe(ctx context.Context, record *store.Record, maxBody int64) (finding, *store.Completion, error) {
	target, err := v.target(record)
	if err != nil {
		return findingNothing, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, v.Method, target, nil)
	if err != nil {
		return findingNothing, nil, err
	}
	r.Header = v.headers.Clone()
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	response, err := v.client.Do(r)
	if err != nil {
		return findingNothing, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	switch {
	case err != nil:
		return findingNothing, nil, err
	case int64(len(body)) > maxBody:
		return findingNothing, nil, fmt.Errorf("response is larger than %d bytes", maxBody)
	case v.Exists.meets(response.StatusCode, body):
		return findingExists, v.completion(response, body), nil
	case v.Absent != nil && v.Absent.meets(response.StatusCode, body):
		return findingAbsent, nil, nil
	}
	return findingNothing, nil, nil
}

// probeNames are the placeholders of a URL.
var probeNames = []string{
	"idempotency.key", "idempotency.natural_key", "idempotency.tenant", "idempotency.actor", "idempotency.operation",
}

var probePlaceholder = regexp.MustCompile(`\{([^{}]*)\}`)

// target resolves the URL. A value is escaped for the path or the query, so that it
// cannot leave its place; one that a server might take for a step up the path is
// refused.
func (v *Verifier) target(record *store.Record) (string, error) {
	values := map[string]string{
		"idempotency.key":         record.Key,
		"idempotency.natural_key": naturalKeyText(record.NaturalKey),
		"idempotency.tenant":      record.Tenant,
		"idempotency.actor":       record.Actor,
		"idempotency.operation":   record.Operation,
	}
	path, query, hasQuery := strings.Cut(v.URL, "?")
	var err error
	fill := func(template string, escape func(string) string) string {
		return probePlaceholder.ReplaceAllStringFunc(template, func(name string) string {
			value := values[name[1:len(name)-1]]
			if value == "" {
				err = fmt.Errorf("the record has no %s", name)
			}
			return escape(value)
		})
	}
	target := fill(path, func(value string) string {
		if strings.Trim(value, ".") == "" || strings.ContainsAny(value, `/\`) {
			err = errors.New("a value cannot stand in a path: put it into the query")
		}
		return url.PathEscape(value)
	})
	if hasQuery {
		target += "?" + fill(query, url.QueryEscape)
	}
	return target, err
}

// comparison is how a path may end: in > and a number.
var comparison = regexp.MustCompile(`^(.*[^>=<])>(-?[0-9]+)$`)

func (e Expectation) meets(status int, body []byte) bool {
	if status != e.Status {
		return false
	}
	if e.Path == "" {
		return true
	}
	if !gjson.ValidBytes(body) {
		return false
	}
	if parts := comparison.FindStringSubmatch(e.Path); parts != nil {
		limit, err := strconv.ParseFloat(parts[2], 64)
		value := gjson.GetBytes(body, parts[1])
		return err == nil && value.Type == gjson.Number && value.Num > limit
	}
	return truthy(gjson.GetBytes(body, e.Path))
}

func truthy(value gjson.Result) bool {
	switch value.Type {
	case gjson.True:
		return true
	case gjson.Number:
		return value.Num != 0 && !math.IsNaN(value.Num)
	case gjson.String:
		return value.Str != ""
	case gjson.JSON:
		empty := true
		value.ForEach(func(_, _ gjson.Result) bool { empty = false; return false })
		return !empty
	}
	return false
}

// completion is what a retry is answered with.
func (v *Verifier) completion(response *http.Response, body []byte) *store.Completion {
	c := &store.Completion{Status: v.Status, Resource: response.Header.Get("Location")}
	if v.Location != "" {
		c.Resource = probePlaceholder.ReplaceAllStringFunc(v.Location, func(name string) string {
			path, ok := strings.CutPrefix(name[1:len(name)-1], "body.")
			if !ok {
				return name
			}
			return url.PathEscape(gjson.GetBytes(body, path).String())
		})
	}
	header := make(http.Header)
	if contentType := response.Header.Get("Content-Type"); contentType != "" {
		header.Set("Content-Type", contentType)
	}
	if !printable(c.Resource) || len(c.Resource) > maxResource {
		c.Resource = ""
	}
	if c.Resource != "" {
		header.Set("Location", c.Resource)
	}
	if v.Body != "" {
		body = []byte(gjson.GetBytes(body, v.Body).Raw)
	}
	if v.Method != http.MethodHead {
		c.Response = &store.Response{Header: header, Body: body}
	}
	return c
}
