package caddymodule

import (
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func parseHandler(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	return handler, nil
}

// UnmarshalCaddyfile sets up the handler from its directive:
//
//	idempotency [<matcher>] {
//		tenant            <value>
//		actor             <value> | shared
//		operation         <value>
//		methods           <method...>
//		key               [header <name> | body <path>] [optional] [strict]
//		max_key_length    <bytes>
//		max_request_body  <size>
//		max_response_body <size>
//		upstream_timeout  <duration>
//		wait              <duration> | off
//		replay_for        <duration>
//		keep_for          <duration> | forever
//		on_status         <status|class...> store|release|unknown
//		forward_key       <header>
//		keep_header       <name...>
//		drop_header       <name...>
//		resource          <path>
//		policy            <url>
//		on_in_flight      conflict | accepted <location>
//		replay            full|refetch|reference
//		store_key         plain|digest
//		on_store_failure  refuse|pass
//		natural_key       <path...> { … }
//		quota             actor|tenant { … }
//		verify            [GET|HEAD] <url> { … }
//		fingerprint       [<version>] {
//			include   <path...>
//			exclude   <path...>
//			default   <path> <value> [null]
//			money     <amount path> <currency path>
//			set       <path...>
//			header    <name...>
//			query     off | <name...>
//			max_depth <n>
//			members   off
//		}
//	}
//
// Only actor is required. What cannot work is refused here, with its line, as far
// as it can be seen without the rest of the configuration; see Handler.check.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive
	directive := d.Token()
	if d.NextArg() {
		return d.Errf("unexpected argument %q: idempotency takes a block of options; a matcher before it begins with / or @", d.Val())
	}
	if err := readBlock(d, block[*Handler]{
		of: "idempotency", options: handlerOptions, repeatable: []string{"on_status", "keep_header", "drop_header", "quota"},
	}, h); err != nil {
		return err
	}
	if h.Actor == "" {
		return errorAt(directive, errNoActor)
	}
	if err := h.checkTogether(); err != nil {
		return errorAt(directive, err)
	}
	return nil
}

// handlerOptions say how each option's line is read. The dispenser stands at the
// option's name, and the option's errors need not name the line.
var handlerOptions = map[string]readOption[*Handler]{
	"tenant":    func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.Tenant, scopePart) },
	"actor":     func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.Actor, scopePart) },
	"operation": func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.Operation, scopePart) },
	"methods":   func(h *Handler, d *caddyfile.Dispenser) error { return several(d, &h.Methods, checkMethod) },
	"key":       func(h *Handler, d *caddyfile.Dispenser) error { return h.Key.unmarshal(d) },
	"max_key_length": func(h *Handler, d *caddyfile.Dispenser) error {
		return one(d, &h.Key.MaxLength, number(1, maxKeyLength))
	},
	"max_request_body":  func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.MaxRequestBody, size) },
	"max_response_body": func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.MaxResponseBody, size) },
	"upstream_timeout": func(h *Handler, d *caddyfile.Dispenser) error {
		return one(d, &h.UpstreamTimeout, duration(rangeUpstreamTimeout))
	},
	"wait": func(h *Handler, d *caddyfile.Dispenser) error {
		return one(d, &h.Wait, durationOr("off", -1, rangeWait))
	},
	"replay_for": func(h *Handler, d *caddyfile.Dispenser) error {
		return one(d, &h.ReplayFor, duration(rangeRetention))
	},
	"keep_for": func(h *Handler, d *caddyfile.Dispenser) error {
		return one(d, &h.KeepFor, durationOr("forever", 0, rangeRetention))
	},
	"on_status": (*Handler).unmarshalOnStatus,
	"forward_key": func(h *Handler, d *caddyfile.Dispenser) error {
		return one(d, &h.ForwardKey, checked(checkRequestHeader))
	},
	"keep_header": func(h *Handler, d *caddyfile.Dispenser) error {
		if err := several(d, &h.KeepHeaders, checkKeepHeader); err != nil {
			return err
		}
		return checkKeptAndDropped(h.KeepHeaders, h.DropHeaders)
	},
	"drop_header": func(h *Handler, d *caddyfile.Dispenser) error {
		if err := several(d, &h.DropHeaders, checkHeaderName); err != nil {
			return err
		}
		return checkKeptAndDropped(h.KeepHeaders, h.DropHeaders)
	},
	"resource":     func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.Resource, checked(checkPath)) },
	"policy":       func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.Policy, checked(checkPolicy)) },
	"on_in_flight": unmarshalOnInFlight,
	"replay":       func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.Replay, checked(checkReplay)) },
	"store_key":    func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.StoreKey, checked(checkStoreKey)) },
	"on_store_failure": func(h *Handler, d *caddyfile.Dispenser) error {
		return one(d, &h.OnStoreFailure, checked(checkOnStoreFailure))
	},
	"natural_key": unmarshalNaturalKey,
	"quota":       unmarshalQuota,
	"verify":      unmarshalVerify,
	"fingerprint": func(h *Handler, d *caddyfile.Dispenser) error {
		return unmarshalFingerprint(&h.Fingerprint, d)
	},
}

// unmarshalOnInFlight reads `on_in_flight conflict | accepted <location>`.
func unmarshalOnInFlight(h *Handler, d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	switch {
	case len(args) == 1 && args[0] == "conflict":
		return nil
	case len(args) == 2 && args[0] == "accepted":
		h.InFlightLocation = args[1]
		return checkInFlightLocation(args[1])
	case len(args) == 0:
		return errors.New("there is no value: write one, conflict or accepted")
	}
	return fmt.Errorf("%s is not understood: write `conflict`, or `accepted` and where to ask, such as `accepted /idempotency/{idempotency.key}`", quoted(args))
}

const keyHelp = "write `header <name>` or `body <path>`, and `optional` or `strict` as needed"

func (s *KeySource) unmarshal(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) == 0 {
		return errors.New("there is no value: " + keyHelp)
	}
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		switch word {
		case "optional":
			s.Optional = true
		case "strict":
			s.Strict = true
		case "header", "body":
			if len(args) == 0 {
				return fmt.Errorf("nothing follows %s: %s", word, keyHelp)
			}
			if s.Header != "" || s.Body != "" {
				return errors.New("the key has two places: write one, `header <name>` or `body <path>`")
			}
			place, check := &s.Header, checkRequestHeader
			if word == "body" {
				place, check = &s.Body, checkPath
			}
			if err := check(args[0]); err != nil {
				return err
			}
			*place, args = args[0], args[1:]
		default:
			return fmt.Errorf("%q is not understood: %s", word, keyHelp)
		}
	}
	return s.checkStrict()
}

func (h *Handler) unmarshalOnStatus(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 2 {
		return fmt.Errorf("there %s: write one or more statuses and what they mean, such as `on_status 409 503 release`", count(args))
	}
	rule := Rule(args[len(args)-1])
	if h.OnStatus == nil {
		h.OnStatus = make(map[string]Rule)
	}
	for _, pattern := range args[:len(args)-1] {
		if err := checkRule(pattern, rule); err != nil {
			return err
		}
		if other, there := h.OnStatus[pattern]; there && other != rule {
			return fmt.Errorf("%s is said to be both %s and %s: leave one", pattern, other, rule)
		}
		h.OnStatus[pattern] = rule
	}
	return nil
}
