package canonical

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// bodyKind is how a body is read.
type bodyKind byte

const (
	bodyEmpty     bodyKind = 'E'
	bodyJSON      bodyKind = 'J'
	bodyForm      bodyKind = 'W'
	bodyMultipart bodyKind = 'Q'
	bodyBytes     bodyKind = 'B'
)

// media is a Content-Type in its normal form: in lower case, parameters sorted, without what does not change the
// meaning (a charset that is UTF-8 anyway, the boundary of a form).
type media struct {
	name     string // empty when the request has no Content-Type
	kind     bodyKind
	boundary string
}

func parseMedia(h http.Header) (media, error) {
	lines := h["Content-Type"]
	if len(lines) == 0 {
		return media{kind: bodyBytes}, nil
	}
	unreadable := func(reason string) (media, error) {
		return media{}, &BodyError{Kind: UnsupportedMedia, Offset: -1, Reason: reason}
	}
	if len(lines) > 1 {
		return unreadable("there is more than one Content-Type")
	}
	switch lines[0] { // what nearly every request says costs nothing
	case "application/json", "application/json; charset=utf-8", "application/json;charset=utf-8", "application/json; charset=UTF-8", "application/json;charset=UTF-8":
		return media{name: "application/json", kind: bodyJSON}, nil
	}
	name, params, err := mime.ParseMediaType(lines[0])
	if err != nil || !strings.Contains(name, "/") {
		return unreadable("the Content-Type cannot be read")
	}
	m := media{name: name, kind: bodyBytes}
	charset := strings.ToLower(params["charset"])
	switch {
	case name == "application/json" || strings.HasSuffix(name, "+json"):
		m.kind = bodyJSON
		if charset != "" && charset != "utf-8" && charset != "utf8" {
			return unreadable("JSON is in UTF-8, and no other charset can be read")
		}
		delete(params, "charset")
	case name == "application/x-www-form-urlencoded":
		m.kind = bodyForm
		if charset == "utf-8" || charset == "utf8" {
			delete(params, "charset")
		}
	case name == "multipart/form-data":
		m.kind = bodyMultipart
		if m.boundary = params["boundary"]; m.boundary == "" {
			return unreadable("multipart/form-data needs a boundary")
		}
		delete(params, "boundary")
	}
	names := make([]string, 0, len(params))
	for p := range params {
		names = append(names, p)
	}
	slices.Sort(names)
	for _, p := range names {
		m.name += "; " + p + "=" + strconv.Quote(params[p]) // quoted, so that no value can pass for two
	}
	return m, nil
}
