package caddymodule

import (
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/stretchr/testify/require"
)

// What stands before the handler that is looked for, in routes of every shape.
func TestWalkKnowsWhatStandsBeforeAHandler(t *testing.T) {
	type (
		list = caddyhttp.RouteList
		one  = caddyhttp.Route
		mid  = []caddyhttp.MiddlewareHandler
	)
	first, other := &Handler{}, &caddyhttp.StaticResponse{}
	sought := &reverseproxy.Handler{}
	some := caddyhttp.MatcherSets{{}}
	sub := func(routes ...one) *caddyhttp.Subroute { return &caddyhttp.Subroute{Routes: routes} }
	failing := func(routes list, errors ...one) *caddyhttp.Subroute {
		return &caddyhttp.Subroute{Routes: routes, Errors: &caddyhttp.HTTPErrorConfig{Routes: errors}}
	}
	named := map[string]*caddyhttp.Route{
		"first": {Handlers: mid{first}}, "sought": {Handlers: mid{sought}},
		"itself": {Handlers: mid{&caddyhttp.Invoke{Name: "itself"}, first}},
	}
	responding := func(routes ...one) *reverseproxy.Handler {
		return &reverseproxy.Handler{HandleResponse: []caddyhttp.ResponseHandler{{Routes: routes}}}
	}
	const never, sometimes, always = "never", "sometimes", "always"
	for name, c := range map[string]struct {
		routes list
		want   string
	}{
		"beside it":             {list{{Handlers: mid{first, sought}}}, always},
		"after it":              {list{{Handlers: mid{sought, first}}}, never},
		"in a route before":     {list{{Handlers: mid{first}}, {Handlers: mid{sought}}}, always},
		"with a matcher":        {list{{MatcherSets: some, Handlers: mid{first, other}}, {Handlers: mid{sought}}}, sometimes},
		"that ends the walk":    {list{{MatcherSets: some, Terminal: true, Handlers: mid{first}}, {Handlers: mid{sought}}}, never},
		"in another of a group": {list{{Group: "g", MatcherSets: some, Handlers: mid{first, other}}, {Group: "g", Handlers: mid{sought}}}, never},
		"in a group before":     {list{{Group: "g", MatcherSets: some, Handlers: mid{first, other}}, {Handlers: mid{sought}}}, sometimes},
		"in another group":      {list{{Group: "g", MatcherSets: some, Handlers: mid{first, other}}, {Group: "h", Handlers: mid{sought}}}, sometimes},
		"in another group between": {list{
			{Group: "g", MatcherSets: some, Handlers: mid{first, other}}, {Group: "h", MatcherSets: some, Handlers: mid{first, other}},
			{Group: "g", Handlers: mid{sought}}}, sometimes},
		"before the subroute":        {list{{Handlers: mid{first, sub(one{Handlers: mid{sought}})}}}, always},
		"in a subroute before":       {list{{Handlers: mid{sub(one{Handlers: mid{first}}), sought}}}, always},
		"in a subroute's group":      {list{{Handlers: mid{sub(one{Group: "g", Handlers: mid{first}}), sought}}}, sometimes},
		"in a subroute of a matcher": {list{{MatcherSets: some, Handlers: mid{sub(one{Handlers: mid{first}})}}, {Handlers: mid{sought}}}, sometimes},
		"in a named route before":    {list{{Handlers: mid{&caddyhttp.Invoke{Name: "first"}, sought}}}, always},
		"before a named route":       {list{{Handlers: mid{first, &caddyhttp.Invoke{Name: "sought"}}}}, always},
		"in one that invokes itself": {list{{Handlers: mid{&caddyhttp.Invoke{Name: "itself"}, sought}}}, always},
		"before error routes":        {list{{Handlers: mid{first, failing(nil, one{Handlers: mid{sought}})}}}, always},
		"in what has failed":         {list{{Handlers: mid{failing(list{{Handlers: mid{first}}}, one{Handlers: mid{sought}})}}}, never},
		"in error routes":            {list{{Handlers: mid{failing(nil, one{Handlers: mid{first}}), sought}}}, sometimes},
		"before a response's routes": {list{{Handlers: mid{first, responding(one{Handlers: mid{sought}})}}}, always},
		"in a response's routes":     {list{{Handlers: mid{responding(one{Handlers: mid{first}}), sought}}}, sometimes},
	} {
		t.Run(name, func(t *testing.T) {
			var found []string
			w := &walker{named: named, visit: func(handler caddyhttp.MiddlewareHandler, before passed) error {
				switch {
				case handler != sought:
				case len(before.every) > 0:
					require.True(t, before.some)
					found = append(found, always)
				case before.some:
					found = append(found, sometimes)
				default:
					found = append(found, never)
				}
				return nil
			}}
			_, err := w.list(c.routes, passed{})
			require.NoError(t, err)
			require.Equal(t, []string{c.want}, found)
		})
	}
}

// Handlers whose matchers may exclude each other are not nested, whatever stands
// between them.
func TestHandlersOfTwoMatchersAreNotNested(t *testing.T) {
	pay, order := &Handler{methods: map[string]bool{"POST": true}}, &Handler{methods: map[string]bool{"POST": true}}
	matched := func(h *Handler) caddyhttp.Route {
		return caddyhttp.Route{MatcherSets: caddyhttp.MatcherSets{{}}, Handlers: []caddyhttp.MiddlewareHandler{h}}
	}
	always := func(h caddyhttp.MiddlewareHandler) caddyhttp.Route {
		return caddyhttp.Route{Handlers: []caddyhttp.MiddlewareHandler{h}}
	}
	w := &walker{visit: nestedAt}

	_, err := w.list(caddyhttp.RouteList{matched(pay), always(&caddyhttp.StaticResponse{}), matched(order)}, passed{})
	require.NoError(t, err)
	_, err = w.list(caddyhttp.RouteList{matched(pay), always(order)}, passed{})
	require.ErrorIs(t, err, errNested)
	_, err = w.list(caddyhttp.RouteList{always(&caddyhttp.Subroute{Routes: caddyhttp.RouteList{always(pay)}}), always(order)}, passed{})
	require.ErrorIs(t, err, errNested)
}
