package caddymodule

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/caddy-idempotency/caddy-idempotency/store/sealed"
)

// framingHeaders are between two hops, or about the framing of one message
// (RFC 9110, section 7.6.1). No route can have them stored.
var framingHeaders = []string{
	"Connection", "Content-Length", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
	sealed.Header, // would be taken for a mark of our own
}

// passingHeaders are about one exchange and not about its result: when and by
// whom it was answered, what identifies it in logs, what the client may still do,
// and its session. A route may keep some of them.
var passingHeaders = []string{
	"Alt-Svc", "Cf-Ray", "Date", "Ratelimit", "Ratelimit-Limit", "Ratelimit-Policy", "Ratelimit-Remaining", "Ratelimit-Reset",
	"Server", "Server-Timing", "Set-Cookie", "Traceparent", "Tracestate", "Via", "Www-Authenticate",
	"X-Amzn-Requestid", "X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "X-Correlation-Id", "X-Request-Id", "X-Trace-Id",
}

// passingPrefixes are families of passing headers.
var passingPrefixes = []string{"X-B3-", "X-Ratelimit-"}

// headerRules are a route's changes to the list of headers that are not stored.
type headerRules struct{ keep, drop []string }

func newHeaderRules(keep, drop []string) headerRules {
	canonical := func(names []string) []string {
		out := make([]string, len(names))
		for i, name := range names {
			out[i] = textproto.CanonicalMIMEHeaderKey(name)
		}
		return out
	}
	return headerRules{keep: canonical(keep), drop: canonical(drop)}
}

func (rules headerRules) stores(name string) bool {
	switch {
	case slices.Contains(framingHeaders, name) || slices.Contains(rules.drop, name):
		return false
	case slices.Contains(rules.keep, name):
		return true
	}
	return !slices.Contains(passingHeaders, name) &&
		!slices.ContainsFunc(passingPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// stored returns the header lines that a replay shows: those of the next
// handlers, without what is not to be stored and what was there before them, as
// that will be there again.
func (rules headerRules) stored(head, before http.Header) http.Header {
	hop := connectionOptions(head)
	stored := make(http.Header, len(head))
	for name, lines := range head {
		if len(lines) == 0 || !rules.stores(textproto.CanonicalMIMEHeaderKey(name)) || slices.Contains(hop, textproto.CanonicalMIMEHeaderKey(name)) ||
			slices.Equal(lines, before[name]) {
			continue
		}
		stored[name] = slices.Clone(lines)
	}
	return stored
}

// connectionOptions are the headers that the Connection header names as hop-by-hop.
func connectionOptions(header http.Header) (names []string) {
	for _, line := range header["Connection"] {
		for option := range strings.SplitSeq(line, ",") {
			names = append(names, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(option)))
		}
	}
	return names
}
