package caddymodule

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

// A part of the scope is a constant, or placeholders that are resolved for each
// request. Much of what cannot work would show up as a 403 for every request, or
// worse, as one bucket for everybody; it is refused here instead.

// placeholder of Caddy's replacer, and of a probe. A brace after a backslash is a
// brace for the former.
var (
	placeholder  = regexp.MustCompile(`\{([^{}]*)\}`)
	escapedBrace = strings.NewReplacer(`\{`, "", `\}`, "")
)

// placeholdersOf returns the names, and what is left of the template without them.
func placeholdersOf(template string) (names []string, rest string) {
	template = escapedBrace.Replace(template)
	for _, match := range placeholder.FindAllStringSubmatch(template, -1) {
		names = append(names, match[1])
	}
	return names, placeholder.ReplaceAllString(template, "")
}

// checkScopeText reports what can be seen without the environment.
func checkScopeText(template string) error {
	names, rest := placeholdersOf(template)
	switch {
	case strings.TrimSpace(template) == "":
		return errors.New("the value is empty: write one, or leave the line out")
	case !printable(template):
		return fmt.Errorf("%q holds a control character: leave it out", template)
	case len(rest) > maxScopePart:
		return fmt.Errorf("the value is longer than %d bytes: write a shorter one", maxScopePart)
	case strings.ContainsAny(rest, "{}") || slices.Contains(names, ""):
		return fmt.Errorf("%q has a brace that belongs to no placeholder: write one such as {http.auth.user.id}", template)
	}
	for _, name := range names {
		if varies(name) {
			return fmt.Errorf("{%s} differs from a request to its retry, which would be executed again: write a value that both of them have", name)
		}
	}
	return nil
}

// varies reports whether a placeholder is about one request and not about who
// sends it.
func varies(name string) bool {
	return name == "http.request.remote" || // with the port
		slices.ContainsFunc([]string{"time.", "http.request.uuid", "http.request.duration", "http.request.remote.port"},
			func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// checkScope reports also what can be seen when the route is provisioned.
func checkScope(template string) error {
	if err := checkScopeText(template); err != nil {
		return err
	}
	names, _ := placeholdersOf(template)
	repl := caddy.NewReplacer()
	for _, name := range names {
		for _, namespace := range []string{"env.", "file.", "system."} {
			if !strings.HasPrefix(name, namespace) {
				continue
			}
			if value, _ := repl.GetString(name); strings.TrimSpace(value) == "" {
				return fmt.Errorf("{%s} is empty, and all requests would be refused: set it before Caddy starts", name)
			}
		}
	}
	return nil
}

// warnOfScope logs what works, and is likely to be a mistake.
func (h *Handler) warnOfScope() {
	for _, part := range []struct{ name, template string }{{"tenant", h.Tenant}, {"actor", h.Actor}, {"operation", h.Operation}} {
		names, _ := placeholdersOf(part.template)
		for _, name := range names {
			if why := doubt(part.name, name); why != "" {
				h.log.Warn(why, zap.String("option", part.name), zap.String("placeholder", "{"+name+"}"))
			}
		}
	}
	if h.Actor != SharedActor && !strings.Contains(h.Actor, "{") {
		h.log.Warn("actor is a constant, so that all callers share one bucket of keys; name who is asking by a placeholder such as {http.auth.user.id}, or write `actor shared` if it is meant",
			zap.String("actor", h.Actor))
	}
}

// doubt says why a placeholder is likely to be wrong in a part of the scope.
func doubt(part, name string) string {
	among := func(prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	}
	switch {
	case among("system.hostname"):
		return "scope differs between instances, so that each of them executes a retry again; write a value that all of them share"
	case !among("http.", "env.", "file.", "system."):
		return "this placeholder is none of Caddy's own: unless a directive before this one, such as map, sets it, all requests are refused with 403; in JSON, write the long names, such as {http.request.host}"
	case part != "operation" && among("http.request.header.", "http.request.cookie.", "http.request.uri", "http.request.orig_uri", "http.request.body"):
		return "scope is taken from what a client can choose; make sure that a directive before this one, such as forward_auth, sets it"
	}
	return ""
}
