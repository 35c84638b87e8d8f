package caddymodule

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/net/http/httpguts"
)

// A probe that is wrong answers wrongly for every unknown outcome, and nobody is
// there to see it: what can be known of it beforehand is checked here.

func (v *Verifier) check() error {
	if err := v.checkTarget(); err != nil {
		return err
	}
	for name, value := range v.Headers {
		others := make(map[string]string)
		for other := range v.Headers {
			if other != name {
				others[other] = ""
			}
		}
		if err := checkProbeHeader(name, value, others); err != nil {
			return fmt.Errorf("headers: %w", err)
		}
	}
	if err := v.checkExpectations(); err != nil {
		return err
	}
	if err := v.checkAnswer(); err != nil {
		return err
	}
	for _, d := range []struct {
		name   string
		value  caddy.Duration
		within durationRange
	}{{"after", v.After, rangeRetention}, {"give_up", v.GiveUp, rangeRetention}, {"timeout", v.Timeout, rangeStoreCall}} {
		if err := d.within.check(d.name, d.value); err != nil {
			return err
		}
	}
	if v.Absent != nil && v.GiveUp <= v.After {
		return errors.New("give_up is not longer than after, before which absent is not believed: write a longer one")
	}
	return nil
}

// checkTarget is about method and URL.
func (v *Verifier) checkTarget() error {
	if v.Method != "" && v.Method != http.MethodGet && v.Method != http.MethodHead {
		return fmt.Errorf("method %q is not one that changes nothing: write GET or HEAD", v.Method)
	}
	asks := false
	for _, match := range placeholder.FindAllStringSubmatch(v.URL, -1) {
		if !slices.Contains(probeNames, match[1]) {
			return fmt.Errorf("placeholder {%s} is not known here: write one of {%s}%s", match[1], strings.Join(probeNames, "}, {"), placeholderHelp(match[0]))
		}
		asks = asks || match[1] == "idempotency.key" || match[1] == "idempotency.natural_key"
	}
	plain := placeholder.ReplaceAllString(v.URL, "x")
	target, err := url.Parse(plain)
	switch {
	case err != nil || target.Scheme != "http" && target.Scheme != "https" || target.Host == "" || strings.ContainsAny(plain, "{}"):
		return fmt.Errorf("url %q is not one: write one such as http://orders:8080/orders?client_ref={idempotency.key}&user={idempotency.actor}", v.URL)
	case strings.Contains(v.URL, "#"):
		return fmt.Errorf("url %q has a #, and what follows is never sent: leave it out, or write %%23", v.URL)
	case strings.Contains(authority(v.URL), "{"):
		return fmt.Errorf("url %q takes its host from a placeholder: write the host as it is", v.URL)
	case !asks:
		return fmt.Errorf("url %q asks the same for every request: write {idempotency.key} or {idempotency.natural_key} where the upstream expects it", v.URL)
	}
	return nil
}

// authority is user, host and port of a URL with placeholders.
func authority(template string) string {
	_, rest, _ := strings.Cut(template, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return rest
}

// checkProbeHeader is for one header, besides others.
func checkProbeHeader(name, value string, others map[string]string) error {
	if err := checkHeaderName(name); err != nil {
		return err
	}
	for other := range others {
		if strings.EqualFold(name, other) {
			return fmt.Errorf("header %s is there twice: leave one", name)
		}
	}
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	switch {
	case slices.Contains(framingHeaders, canonical) || canonical == "Accept-Encoding":
		return fmt.Errorf("header %s is about the framing of the message, which is the probe's own: leave it out", name)
	case strings.TrimSpace(value) == "":
		return fmt.Errorf("header %s has no value: write one, or leave the line out", name)
	case !httpguts.ValidHeaderFieldValue(value):
		return fmt.Errorf("the value of header %s holds a control character: leave it out", name)
	}
	return nil
}

func (v *Verifier) checkExpectations() error {
	if err := v.Exists.check(v.Method); err != nil {
		return fmt.Errorf("exists: %w", err)
	}
	if v.Absent == nil {
		return nil
	}
	if err := v.Absent.check(v.Method); err != nil {
		return fmt.Errorf("absent: %w", err)
	}
	switch {
	case *v.Absent == v.Exists:
		return errors.New("exists and absent are the same: write what tells them apart")
	case v.Absent.Status == v.Exists.Status && v.Exists.Path == "":
		return fmt.Errorf("absent is never found, since exists takes every %d: write a path for exists, such as `exists %d orders.#>0`",
			v.Exists.Status, v.Exists.Status)
	}
	return nil
}

func (e Expectation) check(method string) error {
	if e.Status < 200 || e.Status > 599 {
		return fmt.Errorf("status %d is not one: write a status from 200 to 599, such as 200 or 404", e.Status)
	}
	if e.Path == "" {
		return nil
	}
	if method == http.MethodHead {
		return fmt.Errorf("path %q is into a body, which HEAD does not show: write GET, or leave the path out", e.Path)
	}
	return checkExpectedPath(e.Path)
}

// checkExpectedPath takes any path of gjson. What is outside of a query in brackets
// is compared in one way alone, and anything else would be the name of a member that
// is never there.
func checkExpectedPath(path string) error {
	outside, depth := "", 0
	for _, c := range path {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case depth == 0:
			outside += string(c)
		}
	}
	if strings.TrimSpace(path) == "" || !printable(path) || strings.ContainsAny(outside, "<>=") && !comparison.MatchString(path) {
		return fmt.Errorf("path %q is not one: write a path such as order.id, or one that ends in > and a whole number, such as orders.#>0", path)
	}
	return nil
}

// checkAnswer is about what a retry is answered with.
func (v *Verifier) checkAnswer() error {
	switch {
	case v.Status < 200 || v.Status > 299:
		return fmt.Errorf("status %d is not a success: write 200 to 299", v.Status)
	case v.Body != "" && noBody(v.Status):
		return fmt.Errorf("body is never shown, since an answer with status %d has none: leave one of the two out", v.Status)
	case v.Method == http.MethodHead && (v.Body != "" || strings.Contains(v.Location, "{")):
		return errors.New("HEAD shows no body, from which body or location could be taken: write GET")
	}
	if err := unless(v.Body == "", checkPath, v.Body); err != nil {
		return fmt.Errorf("body: %w", err)
	}
	if err := unless(v.Location == "", checkProbeLocation, v.Location); err != nil {
		return fmt.Errorf("location: %w", err)
	}
	return nil
}

func checkProbeLocation(template string) error {
	for _, match := range placeholder.FindAllStringSubmatch(template, -1) {
		path, ok := strings.CutPrefix(match[1], "body.")
		if !ok {
			return fmt.Errorf("placeholder {%s} is not known here: write one such as {body.orders.0.id}", match[1])
		}
		if err := checkPath(path); err != nil {
			return err
		}
	}
	plain := placeholder.ReplaceAllString(template, "x")
	if strings.ContainsAny(plain, "{}") || !isLink(plain) {
		return fmt.Errorf("%q is not a link: write a path such as /orders/{body.orders.0.id}, or a URL", template)
	}
	return nil
}
