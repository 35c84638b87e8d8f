package caddymodule

import (
	"errors"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// Some mistakes show only in how handlers stand to each other. One walk over all
// routes says of each handler which of this module's stand before it; the checks are
// made on top of it (nested.go, proxies.go).

// passed are this module's handlers that stand before another handler.
type passed struct {
	every []*Handler // that every request has been through when it comes there
	some  bool       // a request may have been through one
}

// walker visits the handlers of one server.
type walker struct {
	named map[string]*caddyhttp.Route
	visit func(handler caddyhttp.MiddlewareHandler, before passed) error

	invoked []string // named routes that the walk is in
}

// walkRoutes visits the handlers of every server, in the order in which requests
// come to them.
func walkRoutes(ctx caddy.Context, visit func(server string, handler caddyhttp.MiddlewareHandler, before passed) error) error {
	app, err := ctx.AppIfConfigured("http")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return nil // no sites, nothing to look at
	}
	if err != nil {
		return err
	}
	for name, server := range app.(*caddyhttp.App).Servers {
		w := &walker{named: server.NamedRoutes, visit: func(handler caddyhttp.MiddlewareHandler, before passed) error {
			return visit(name, handler, before)
		}}
		if _, err := w.list(server.Routes, passed{}); err != nil {
			return err
		}
		if server.Errors != nil {
			if _, err := w.list(server.Errors.Routes, passed{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// list walks routes of which each may match, and returns what stands before
// whatever follows them.
func (w *walker) list(routes caddyhttp.RouteList, before passed) (after passed, err error) {
	after = passed{every: slices.Clone(before.every), some: before.some}
	var onward []*Handler       // that some requests have been through, and surely come here
	groups := map[string]bool{} // in which one of this module's handlers stands
	for _, route := range routes {
		always := len(route.MatcherSets) == 0 && route.Group == ""
		in := passed{every: slices.Clone(after.every), some: after.some}
		for group := range groups { // of a group one route runs
			in.some = in.some || group != route.Group
		}
		if always {
			in.every = append(in.every, onward...)
		}
		out, err := w.handlers(route.Handlers, in)
		switch {
		case err != nil:
			return after, err
		case route.Terminal:
			continue // nothing comes after it
		case always:
			after.every = append(after.every, out.every[len(in.every):]...)
			after.some = after.some || out.some
		case out.some && !after.some:
			groups[route.Group] = true
			after.some = after.some || route.Group == ""
		}
		if last := len(route.Handlers) - 1; !always && last >= 0 {
			if handler, ok := route.Handlers[last].(*Handler); ok { // nothing after it answers
				onward = append(onward, handler)
			}
		}
	}
	after.some = after.some || len(groups) > 0
	return after, nil
}

// handlers walks the handlers of one route.
func (w *walker) handlers(handlers []caddyhttp.MiddlewareHandler, at passed) (passed, error) {
	for _, handler := range handlers {
		if err := w.visit(handler, at); err != nil {
			return at, err
		}
		var err error
		switch handler := handler.(type) {
		case *Handler:
			at = passed{every: append(slices.Clone(at.every), handler), some: true}
		case *caddyhttp.Subroute:
			before := at
			at, err = w.list(handler.Routes, before)
			if err == nil && handler.Errors != nil {
				err = w.aside(handler.Errors.Routes, before, &at)
			}
		case *caddyhttp.Invoke:
			at, err = w.invoke(handler.Name, at)
		case *reverseproxy.Handler:
			for _, response := range handler.HandleResponse {
				if err = w.aside(response.Routes, at, &at); err != nil {
					break
				}
			}
		}
		if err != nil {
			return at, err
		}
	}
	return at, nil
}

// aside walks routes that run in some cases only.
func (w *walker) aside(routes caddyhttp.RouteList, before passed, at *passed) error {
	after, err := w.list(routes, before)
	at.some = at.some || after.some
	return err
}

// invoke walks a named route, once if it should invoke itself.
func (w *walker) invoke(name string, at passed) (passed, error) {
	route := w.named[name]
	if route == nil || slices.Contains(w.invoked, name) {
		return at, nil
	}
	w.invoked = append(w.invoked, name)
	defer func() { w.invoked = w.invoked[:len(w.invoked)-1] }()
	return w.list(caddyhttp.RouteList{*route}, at)
}
