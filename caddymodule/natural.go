package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/caddy-idempotency/caddy-idempotency/canonical"
)

// NaturalKey is the business identity inside the payload, such as a requisition
// number: unique in its tenant and operation, whatever the client's key.
type NaturalKey struct {
	// Paths into the body, as the fingerprint's rules leave it: gjson paths after
	// defaults, such as `["requisition_no"]`. Several make a composite. Required.
	Paths []string `json:"paths,omitempty"`

	// OnClash says what a request gets whose natural key belongs to another key:
	// `conflict` is 409; `replay` shows the stored answer, if actor and fingerprint
	// are the same, and is 409 if not. An example: `"replay"`. Default: `conflict`.
	OnClash string `json:"on_clash,omitempty"`

	// Optional lets a request without a natural key through. Default: false, it
	// gets 400.
	Optional bool `json:"optional,omitempty"`
}

// The values of OnClash.
const (
	ClashConflict = "conflict"
	ClashReplay   = "replay"
)

func (k *NaturalKey) check() error {
	if err := unless(k.OnClash == "", checkOnClash, k.OnClash); err != nil {
		return fmt.Errorf("on_clash: %w", err)
	}
	return checkNaturalKeyPaths(k.Paths)
}

func checkOnClash(what string) error {
	switch what {
	case ClashConflict, ClashReplay:
		return nil
	}
	return fmt.Errorf("%q is not known: write %s or %s", what, ClashConflict, ClashReplay)
}

func checkNaturalKeyPaths(paths []string) error {
	if len(paths) == 0 {
		return errors.New("there is no path: write one or more into the body, such as requisition_no")
	}
	for i, path := range paths {
		if err := checkPath(path); err != nil {
			return err
		}
		if slices.Contains(paths[:i], path) {
			return fmt.Errorf("path %q is there twice: leave one", path)
		}
	}
	return nil
}

// checkLeftIn refuses a path that the fingerprint's rules leave out: the natural key
// is taken from what they leave, and would be missing from every request.
func (k *NaturalKey) checkLeftIn(rules canonical.Rules) error {
	for _, path := range k.Paths {
		// As a default would have to be there, so has the natural key.
		_, err := canonical.Compile(canonical.Rules{
			Include: rules.Include, Exclude: rules.Exclude, MaxDepth: rules.MaxDepth,
			Defaults: []canonical.Default{{Path: path, Value: json.RawMessage("null")}},
		})
		if wrong := (*canonical.RuleError)(nil); errors.As(err, &wrong) && wrong.Rule == "default" {
			return fmt.Errorf("path %q is missing from every request by the fingerprint's rules (%s): let it count, or name a member that does",
				path, wrong.Reason)
		}
	}
	return nil
}

// maxNaturalKey in bytes; see maxScopePart.
const maxNaturalKey = 1024

// NaturalKeyError says why a request has no natural key that can be used.
type NaturalKeyError struct{ Reason string }

func (e *NaturalKeyError) Error() string { return "the natural key " + e.Reason }

// naturalKey takes the business identity from the canonical body: one value as
// canonical JSON, or a list of them, so that "5" and 5, or "a","bc" and "ab","c",
// are never the same.
func (h *Handler) naturalKey(x *exchange) (string, error) {
	if h.NaturalKey == nil {
		return "", nil
	}
	if _, err := h.canon.JSON(x.request); err != nil { // what is not JSON must not pass by its media type
		return "", err
	}
	form, err := h.canon.Canonical(x.request)
	if err != nil {
		return "", err
	}
	body := gjson.GetBytes(form, "json")
	values := make([]string, 0, len(h.NaturalKey.Paths))
	for _, path := range h.NaturalKey.Paths {
		value := body.Get(path)
		switch {
		case !value.Exists() || value.Type == gjson.Null || value.Type == gjson.String && value.Str == "":
			if h.NaturalKey.Optional {
				return "", nil
			}
			return "", &NaturalKeyError{Reason: "is missing: this route needs " + path + " in the body"}
		case value.Type == gjson.JSON:
			return "", &NaturalKeyError{Reason: "is not a single value at " + path}
		}
		values = append(values, value.Raw)
	}
	key := values[0]
	if len(values) > 1 {
		key = "[" + strings.Join(values, ",") + "]"
	}
	if len(key) > maxNaturalKey {
		return "", &NaturalKeyError{Reason: fmt.Sprintf("is longer than %d bytes", maxNaturalKey)}
	}
	return key, nil
}

// naturalKeyText is the natural key as a person, or an upstream, knows it.
func naturalKeyText(key string) string { return gjson.Parse(key).String() }
