package caddymodule

import (
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/net/http/httpguts"

	"github.com/caddy-idempotency/caddy-idempotency/canonical"
)

// check reports the first option that cannot work, and what to write instead. The
// Caddyfile's parser calls the same checks, to name the line.
func (h *Handler) check() error {
	if h.Actor == "" {
		return errNoActor
	}
	for _, option := range []struct {
		name string
		err  error
	}{
		{"tenant", checkScope(h.Tenant)},
		{"actor", checkScope(h.Actor)},
		{"operation", unless(h.Operation == "", checkScope, h.Operation)},
		{"methods", each(h.Methods, checkMethod)},
		{"key.header", unless(h.Key.Header == "", checkRequestHeader, h.Key.Header)},
		{"key.body", unless(h.Key.Body == "", checkPath, h.Key.Body)},
		{"key", h.Key.checkStrict()},
		{"fingerprint.version", unless(h.Fingerprint.Version == "", checkVersion, h.Fingerprint.Version)},
		{"forward_key", unless(h.ForwardKey == "", checkRequestHeader, h.ForwardKey)},
		{"keep_headers", each(h.KeepHeaders, checkKeepHeader)},
		{"drop_headers", each(h.DropHeaders, checkHeaderName)},
		{"keep_headers", checkKeptAndDropped(h.KeepHeaders, h.DropHeaders)},
		{"resource", unless(h.Resource == "", checkPath, h.Resource)},
		{"policy", checkPolicy(h.Policy)},
		{"replay", unless(h.Replay == "", checkReplay, h.Replay)},
		{"store_key", unless(h.StoreKey == "", checkStoreKey, h.StoreKey)},
		{"on_store_failure", unless(h.OnStoreFailure == "", checkOnStoreFailure, h.OnStoreFailure)},
		{"in_flight_location", unless(h.InFlightLocation == "", checkInFlightLocation, h.InFlightLocation)},
	} {
		if option.err != nil {
			return fmt.Errorf("%s: %w", option.name, option.err)
		}
	}
	if h.NaturalKey != nil {
		if err := h.NaturalKey.check(); err != nil {
			return fmt.Errorf("natural_key: %w", err)
		}
	}
	if h.Verify != nil {
		if err := h.Verify.check(); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
	}
	if err := h.checkTogether(); err != nil {
		return err
	}
	if err := h.Quota.check(); err != nil {
		return err
	}
	if h.Key.Header != "" && h.Key.Body != "" {
		return fmt.Errorf("key has two places, header %s and body %s: leave one", h.Key.Header, h.Key.Body)
	}
	for _, pattern := range slices.Sorted(maps.Keys(h.OnStatus)) {
		if err := checkRule(pattern, h.OnStatus[pattern]); err != nil {
			return fmt.Errorf("on_status: %w", err)
		}
	}
	return h.checkNumbers()
}

// checkTogether reports options that do not go with one another, in whatever order
// they are written.
func (h *Handler) checkTogether() error {
	if h.NaturalKey != nil {
		if err := h.NaturalKey.checkLeftIn(h.Fingerprint); err != nil {
			return fmt.Errorf("natural_key: %w", err)
		}
	}
	v := h.Verify
	if v == nil {
		return nil
	}
	switch {
	case h.Operation == "" || isTemplate(h.Operation):
		return errors.New("verify needs an operation that is a constant, by which its records are found: write one such as `operation create-order`")
	case h.StoreKey == StoreKeyDigest && v.asksBy("key"):
		return errors.New("verify needs the key itself, of which store_key digest keeps a digest alone: ask by {idempotency.natural_key}")
	case h.NaturalKey == nil && v.asksBy("natural_key"):
		return errors.New("verify asks by {idempotency.natural_key}, and there is none: write natural_key and a path, or ask by {idempotency.key}")
	// A key is one within its scope, a natural key within tenant and operation: a probe
	// that leaves the rest out finds what another has made, and shows it.
	case isTemplate(h.Tenant) && !v.asksBy("tenant"):
		return errors.New("verify asks for what other tenants may have too: write {idempotency.tenant} into its URL, by which the upstream tells them apart")
	case isTemplate(h.Actor) && !v.asksBy("actor") && !v.asksBy("natural_key"):
		return errors.New("verify asks by {idempotency.key}, which other actors may have used too: write {idempotency.actor} into its URL, by which the upstream tells them apart, or ask by {idempotency.natural_key}")
	case !h.keepsResponses() && v.Body != "":
		return fmt.Errorf("verify: body is never shown, since replay %s keeps none: leave one of the two out", h.Replay)
	}
	return nil
}

// checkNumbers is for JSON; in a Caddyfile, a line that is out of range is not read.
func (h *Handler) checkNumbers() error {
	if h.Key.MaxLength < 1 || h.Key.MaxLength > maxKeyLength {
		return fmt.Errorf("key.max_length %d is out of range: write 1 to %d", h.Key.MaxLength, maxKeyLength)
	}
	for _, size := range []struct {
		name  string
		value int64
	}{{"max_request_body", h.MaxRequestBody}, {"max_response_body", h.MaxResponseBody}} {
		if size.value < 1 || size.value > maxBody {
			return fmt.Errorf("%s %d is out of range: write 1 to %d, in bytes", size.name, size.value, int64(maxBody))
		}
	}
	if err := rangeUpstreamTimeout.check("upstream_timeout", h.UpstreamTimeout); err != nil {
		return err
	}
	if h.Wait >= 0 { // a negative one does not wait
		if err := rangeWait.check("wait", h.Wait); err != nil {
			return err
		}
	}
	if err := rangeRetention.check("replay_for", h.ReplayFor); err != nil {
		return err
	}
	return rangeRetention.checkSet("keep_for", h.KeepFor) // 0 is for ever
}

func unless(unset bool, check func(string) error, value string) error {
	if unset {
		return nil
	}
	return check(value)
}

func each(values []string, check func(string) error) error {
	for _, value := range values {
		if err := check(value); err != nil {
			return err
		}
	}
	return nil
}

var errNoActor = errors.New("actor is not set: name who is asking by a trusted value, such as `actor {http.auth.user.id}`; " +
	"`actor shared` gives all callers of the route one bucket of keys")

// maxBody of max_request_body and max_response_body: what is kept in memory for
// each request, and in one row.
const maxBody = 512 << 20

// maxConns of the PostgreSQL store.
const maxConns = 10_000

func checkMethod(method string) error {
	switch {
	case !httpguts.ValidHeaderFieldName(method) || method == "*":
		return fmt.Errorf("method %q is not one: write names such as POST", method)
	case method != strings.ToUpper(method):
		return fmt.Errorf("method %q never occurs, since methods are case-sensitive: write %s", method, strings.ToUpper(method))
	case method == "GET":
		// Shown by a run: net/http repeats a GET without a body whose connection dies.
		return errors.New("method GET is repeated by Go's HTTP transport itself, and is no write: leave it out")
	case slices.Contains([]string{"CONNECT", "HEAD", "OPTIONS", "TRACE"}, method):
		return fmt.Errorf("method %s has no result that could be replayed: leave it out", method)
	}
	return nil
}

func checkHeaderName(name string) error {
	if !httpguts.ValidHeaderFieldName(name) {
		return fmt.Errorf("%q is not the name of a header: write it without a colon, such as X-Client-Reference", name)
	}
	return nil
}

// checkRequestHeader is for a header that carries the key, on either side.
func checkRequestHeader(name string) error {
	if err := checkHeaderName(name); err != nil {
		return err
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	taken := []string{"Accept-Encoding", "Authorization", "Content-Encoding", "Content-Type", "Cookie", "Expect", "Host"}
	if slices.Contains(framingHeaders, name) || slices.Contains(taken, name) {
		return fmt.Errorf("header %s has a meaning of its own in HTTP and cannot carry a key: write one such as X-Client-Reference", name)
	}
	return nil
}

func checkKeepHeader(name string) error {
	if err := checkHeaderName(name); err != nil {
		return err
	}
	if name = textproto.CanonicalMIMEHeaderKey(name); slices.Contains(framingHeaders, name) {
		return fmt.Errorf("header %s is about the framing of one message and cannot be stored: leave it out", name)
	}
	return nil
}

func checkKeptAndDropped(keep, drop []string) error {
	for _, name := range keep {
		if slices.ContainsFunc(drop, func(other string) bool { return strings.EqualFold(name, other) }) {
			return fmt.Errorf("header %s is both kept and dropped: leave one", name)
		}
	}
	return nil
}

// checkPath takes a path to one value. What gjson can say besides (queries,
// modifiers, every element) is no place for a key or a reference.
func checkPath(path string) error {
	_, err := canonical.Compile(canonical.Rules{Include: []string{path}})
	if wrong := (*canonical.RuleError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("path %q cannot be used, %s: write one such as data.id or items.0.id", path, wrong.Reason)
	}
	if slices.Contains(strings.Split(path, "."), "#") {
		return fmt.Errorf("path %q cannot be used, it names many values: write one such as data.id or items.0.id", path)
	}
	return err
}

// checkVersion takes what can stand in a record; it is a constant.
func checkVersion(version string) error {
	switch {
	case strings.TrimSpace(version) == "" || !printable(version) || len(version) > maxVersion:
		return fmt.Errorf("version %q is not 1 to %d printable characters: write one such as orders/v1", version, maxVersion)
	case strings.ContainsAny(version, "{}"):
		return fmt.Errorf("version %q is a constant, in which placeholders are not resolved: write one such as orders/v1", version)
	}
	return nil
}

const maxVersion = 128

// isLink reports whether a text is a URL, or a path, that can stand in a header.
func isLink(text string) bool {
	u, err := url.Parse(text)
	outside := func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("<>\"", c) }
	return err == nil && !strings.ContainsFunc(text, outside) &&
		(u.Scheme != "" || strings.HasPrefix(text, "/")) &&
		(u.Scheme != "http" && u.Scheme != "https" || u.Host != "")
}

func checkPolicy(policy string) error {
	if !isLink(policy) {
		return fmt.Errorf("%q is not a link: write a URL such as https://example.com/idempotency, or a path such as /idempotency", policy)
	}
	return nil
}

// checkInFlightLocation takes a path or a URL, in which the key and Caddy's
// placeholders are resolved for each request.
func checkInFlightLocation(template string) error {
	names, rest := placeholdersOf(template)
	if strings.ContainsAny(rest, "{}") || slices.Contains(names, "") || !isLink(placeholder.ReplaceAllString(template, "x")) {
		return fmt.Errorf("%q is not a link: write a path such as /idempotency/{idempotency.key}, or a URL", template)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "idempotency.") && name != "idempotency.key" {
			return fmt.Errorf("placeholder {%s} is not known here: write {idempotency.key}", name)
		}
	}
	return nil
}

func checkSQLitePath(path string) error {
	switch {
	case strings.TrimSpace(path) == "":
		return errors.New("path is empty: write one such as /var/lib/caddy/idempotency.db, or leave it out for a file in Caddy's data directory")
	case path == ":memory:" || strings.HasPrefix(path, "file:"):
		return fmt.Errorf("path %q is SQLite's own notation: write the name of a file, since records must outlive the process", path)
	}
	return nil
}

// check is for JSON, as checkNumbers is.
func (s *PostgresStore) check() error {
	if err := rangeStoreCall.checkSet("timeout", s.Timeout); err != nil {
		return err
	}
	if err := rangeStoreCall.checkSet("lock_timeout", s.LockTimeout); err != nil {
		return err
	}
	if s.MaxConns < 0 || s.MaxConns > maxConns {
		return fmt.Errorf("max_conns %d is out of range: write 1 to %d", s.MaxConns, maxConns)
	}
	return nil
}

// checkSet is check for an option that may be left out.
func (r durationRange) checkSet(name string, value caddy.Duration) error {
	if value == 0 {
		return nil
	}
	return r.check(name, value)
}

// check is for a value of JSON.
func (r durationRange) check(name string, value caddy.Duration) error {
	d := time.Duration(value)
	switch {
	case r.has(d):
		return nil
	case 0 < d && d < r.from:
		return fmt.Errorf("%s %s is out of range: write %s; a number without a unit is in nanoseconds, \"%s\" is not", name, d, r, strings.Fields(r.example)[0])
	}
	return fmt.Errorf("%s %s is out of range: write %s", name, brief(d), r)
}
