package caddymodule

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// Pages of a list.
const (
	defaultPage = 50
	maxPage     = 1000
)

// listView is the answer of records.
type listView struct {
	Records []recordView `json:"records"`
	Next    string       `json:"next,omitempty"` // cursor of the next page; none on the last one
}

func adminList(d desk, w http.ResponseWriter, r *http.Request) (any, error) {
	filter, err := readFilter(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	page := filter
	page.Limit++ // one more, to know whether there is a next page
	records, err := ask(r.Context(), d, func(ctx context.Context, s *store.Store) ([]*store.Record, error) {
		return s.List(ctx, page)
	})
	if err != nil {
		return nil, err
	}
	view := listView{Records: make([]recordView, 0, len(records))}
	if len(records) > filter.Limit {
		records = records[:filter.Limit]
		if view.Next, err = sealCursor(filter, records[filter.Limit-1]); err != nil {
			return nil, err
		}
		query := r.URL.Query()
		query.Set("after", view.Next)
		w.Header().Set("Link", fmt.Sprintf(`<%s?%s>; rel="next"`, r.URL.Path, query.Encode()))
	}
	for _, record := range records {
		view.Records = append(view.Records, viewRecord(record))
	}
	return view, nil
}

// filterOptions read the parameters of a list.
var filterOptions = map[string]func(f *store.Filter, value string) error{
	"state": func(f *store.Filter, value string) error {
		if f.State = store.State(value); !f.State.Known() {
			return badRequest("state %q is not one: write one of %s", value, stateNames())
		}
		return nil
	},
	"older": func(f *store.Filter, value string) (err error) {
		if f.OlderThan, err = caddy.ParseDuration(value); err != nil || f.OlderThan < 0 {
			return badRequest("older %q is not a duration: write one such as 10m, 2h or 1d", value)
		}
		return nil
	},
	"tenant":    func(f *store.Filter, value string) error { return checkFilter("tenant", &f.Tenant, value) },
	"operation": func(f *store.Filter, value string) error { return checkFilter("operation", &f.Operation, value) },
	"limit": func(f *store.Filter, value string) (err error) {
		if f.Limit, err = strconv.Atoi(value); err != nil || f.Limit < 1 || f.Limit > maxPage {
			return badRequest("limit %q is out of range: write 1 to %d, and ask for the next page with after", value, maxPage)
		}
		return nil
	},
	"after": func(*store.Filter, string) error { return nil }, // which needs all others
}

// readFilter reads the query. A name that is not known is refused: a list that is
// not filtered as it was meant to be looks like one that is.
func readFilter(rawQuery string) (store.Filter, error) {
	f := store.Filter{State: store.Unknown, Limit: defaultPage}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return f, badRequest("the query cannot be read: %v", err)
	}
	for name, values := range query {
		read, known := filterOptions[name]
		switch {
		case !known:
			return f, badRequest("parameter %q is not known: write some of state, older, tenant, operation, limit, after", name)
		case len(values) > 1:
			return f, badRequest("parameter %s is there %d times: write it once", name, len(values))
		}
		if err := read(&f, values[0]); err != nil {
			return f, err
		}
	}
	if cursor := query.Get("after"); cursor != "" {
		f.After, err = openCursor(f, cursor)
	}
	return f, err
}

func checkFilter(name string, into *string, value string) error {
	if !printable(value) {
		return badRequest("%s holds a control character: write it as it is listed", name)
	}
	*into = value
	return nil
}

func stateNames() string {
	var names []string
	for _, state := range store.States {
		names = append(names, string(state))
	}
	return strings.Join(names, ", ")
}
