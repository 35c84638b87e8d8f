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
	// Method of the probe: `GET` or `HEAD`, which never shows a body. Default: `GET`.
	Method string `json:"method,omitempty"`

	// URL of the probe, such as
	// `http://orders:8080/orders?client_ref={idempotency.key}&user={idempotency.actor}`.
	// These placeholders are resolved, and escaped for where they stand:
	// `{idempotency.key}`, `{idempotency.natural_key}`, and the parts of the scope
	// `{idempotency.tenant}`, `{idempotency.actor}`, `{idempotency.operation}`. One of
	// the keys must be there, with the tenant if the route's is not a constant, and
	// `{idempotency.key}` with the actor likewise. Required.
	URL string `json:"url,omitempty"`

	// Headers of the probe, by name, such as
	// `{"Authorization": "Bearer {env.VERIFY_TOKEN}"}`. Placeholders are resolved
	// when the route is provisioned. Default: none.
	Headers map[string]string `json:"headers,omitempty"`

	// Exists says which response means that the object exists, such as
	// `{"status": 200, "path": "orders.#>0"}`. Required.
	Exists Expectation `json:"exists,omitzero"`

	// Absent says which response means that it does not, such as
	// `{"status": 404}`. Default: none does, and the verifier never reopens a key.
	Absent *Expectation `json:"absent,omitempty"`

	// After is how long after an outcome became unknown the upstream can no longer
	// be working on it; only then `absent` is believed. From 1ms to 36500d, such as
	// `"5m"`. Default: twice upstream_timeout, and 60s at least.
	After caddy.Duration `json:"after,omitempty"`

	// GiveUp is how old an unknown outcome may become before it is left to an
	// operator. From 1ms to 36500d, longer than after, such as `"7d"`. Default: 24h.
	GiveUp caddy.Duration `json:"give_up,omitempty"`

	// Timeout of one probe. From 1ms to 10m, such as `"2s"`. Default: 10s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// Status that a retry is then answered with, once the object exists. From 200 to
	// 299, such as `200`. Default: 201.
	Status int `json:"status,omitempty"`

	// Body is a gjson path to what a retry is then answered with in the probe's
	// body, such as `orders.0`. Default: all of it.
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
	// Status of the response, from 200 to 599, such as `200`. Required.
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

// fillDefaults knows when the upstream can no longer be working on a request by
// how long it was waited for.
func (v *Verifier) fillDefaults(upstreamTimeout time.Duration) {
	setDefault(&v.Method, http.MethodGet)
	setDefault(&v.After, caddy.Duration(max(2*upstreamTimeout, DefaultVerifyAfter)))
	setDefault(&v.GiveUp, caddy.Duration(DefaultVerifyGiveUp))
	setDefault(&v.Timeout, caddy.Duration(DefaultVerifyTimeout))
	setDefault(&v.Status, DefaultVerifyStatus)
}

// provision follows fillDefaults and check.
func (v *Verifier) provision() error {
	v.headers = make(http.Header)
	for name, template := range v.Headers {
		value, err := resolve(template)
		if err == nil && !httpguts.ValidHeaderFieldValue(value) {
			err = errors.New("the value holds a control character: leave it out")
		}
		if err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
		v.headers.Set(name, value)
	}
	v.client = &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true},
		Timeout:   time.Duration(v.Timeout),
		// A redirect is no finding: it may lead to a login page, whose 200 or 404 says
		// nothing of the object, and the probe's credentials are for one host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
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
		return findingNothing, nil, errors.Unwrap(err) // *url.Error, whose text has the URL, and so the key
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	switch {
	case err != nil:
		return findingNothing, nil, err
	case int64(len(body)) > maxBody:
		return findingNothing, nil, fmt.Errorf("response is larger than %d bytes", maxBody)
	case len(body) > 0 && !slices.Contains([]string{"", "identity"}, strings.ToLower(response.Header.Get("Content-Encoding"))):
		return findingNothing, nil, errors.New("response has a content coding that was not asked for") // gzip was, and is decoded
	case response.StatusCode == v.Exists.Status && v.Exists.Path != "" && !gjson.ValidBytes(body):
		// A page of somebody in between, with the right status, says nothing of the object.
		return findingNothing, nil, errors.New("response is not JSON")
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

func (v *Verifier) asksBy(name string) bool { return strings.Contains(v.URL, "{idempotency."+name+"}") }

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
		return placeholder.ReplaceAllStringFunc(template, func(name string) string {
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

// comparison is how a path may end: in > and a number. A space before it would belong
// to the name of a member.
var comparison = regexp.MustCompile(`^(.*[^>=< ])>(-?[0-9]+)$`)

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
	missing := false
	if v.Location != "" {
		c.Resource = placeholder.ReplaceAllStringFunc(v.Location, func(name string) string {
			path, ok := strings.CutPrefix(name[1:len(name)-1], "body.")
			if !ok {
				return name
			}
			value := gjson.GetBytes(body, path).String()
			missing = missing || value == ""
			return url.PathEscape(value)
		})
	}
	header := make(http.Header)
	if contentType := response.Header.Get("Content-Type"); contentType != "" {
		header.Set("Content-Type", contentType)
	}
	if missing || !printable(c.Resource) || len(c.Resource) > maxResource {
		c.Resource = ""
	}
	if c.Resource != "" {
		header.Set("Location", c.Resource)
	}
	if v.Body != "" {
		body = []byte(gjson.GetBytes(body, v.Body).Raw)
	}
	if noBody(v.Status) {
		body = nil
	}
	if v.Method != http.MethodHead {
		c.Response = &store.Response{Header: header, Body: body}
	}
	return c
}
