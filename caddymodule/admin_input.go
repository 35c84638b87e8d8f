package caddymodule

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// maxInput of a request to the admin API, in bytes.
const maxInput = 16 << 20

// readInput reads the JSON of a request, and nothing but what it understands: a
// misspelt member must not turn one decision into another.
func readInput(w http.ResponseWriter, r *http.Request, input any) error {
	// As Caddy's own API, and for the same reason: a page in a browser cannot send it
	// elsewhere without asking.
	if mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); mediaType != "application/json" {
		return &adminError{adminProblem: adminNotJSON, text: "the request is not said to be JSON: send it with Content-Type: application/json"}
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxInput))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return &adminError{adminProblem: adminTooLarge, text: "the request is larger than 16 MiB: leave the body of the response out, with without_response"}
	case err != nil:
		return badRequest("the request broke off: %v", err)
	case !utf8.Valid(raw):
		return badRequest("the request is not valid UTF-8: send bytes of a response as body_base64")
	}
	return decodeStrictly(raw, input)
}

func decodeStrictly(raw []byte, input any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(input); err != nil {
		return badRequest("the request cannot be read: %v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return badRequest("the request goes on after its JSON object: send one")
	}
	return nil
}

// identityInput addresses a record, by what is listed.
type identityInput struct {
	Tenant    string `json:"tenant"` // default: `default`, which is a route's default, too
	Actor     string `json:"actor"`
	Operation string `json:"operation"`
	Key       string `json:"key"`
}

func (i identityInput) identity() (store.Identity, error) {
	setDefault(&i.Tenant, DefaultTenant)
	id := store.Identity{Scope: store.Scope{Tenant: i.Tenant, Actor: i.Actor, Operation: i.Operation}, Key: i.Key}
	for _, part := range []struct{ name, value string }{
		{"tenant", id.Tenant}, {"actor", id.Actor}, {"operation", id.Operation}, {"key", id.Key},
	} {
		switch {
		case part.value == "":
			return id, badRequest("%s is missing: write tenant, actor, operation and key as they are listed", part.name)
		case !printable(part.value):
			return id, badRequest("%s holds a control character: write it as it is listed", part.name)
		}
	}
	return id, nil
}

// checkWords takes what an operator writes for people.
func checkWords(name, value string, most int, example string) error {
	switch {
	case strings.TrimSpace(value) == "":
		return badRequest("%s is missing: write %s", name, example)
	case !printable(value):
		return badRequest("%s holds a control character: write one line of text", name)
	case len(value) > most:
		return badRequest("%s is longer than %d bytes: write less, and where the rest can be found", name, most)
	}
	return nil
}
