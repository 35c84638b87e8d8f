package caddymodule

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/dustin/go-humanize"

	"github.com/caddy-idempotency/caddy-idempotency/canonical"
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
// Only actor is required.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive
	if d.NextArg() {
		return d.Errf("unexpected argument %q: idempotency takes a block of options, and its line ends with {", d.Val())
	}
	line := d.Token()
	seen := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		option := d.Val()
		parse, known := handlerOptions[option]
		if !known {
			return d.Errf("unknown option %q: the options of idempotency are %s", option, names(handlerOptions))
		}
		if seen[option] && !repeatable[option] {
			return d.Errf("option %s is there twice: leave one", option)
		}
		seen[option] = true
		if err := parse(h, d); err != nil {
			return located(d, option, err)
		}
	}
	if h.Actor == "" {
		return fmt.Errorf("%s:%d: %w", line.File, line.Line, errNoActor)
	}
	return nil
}

// repeatable options add to what an earlier line said.
var repeatable = map[string]bool{"on_status": true, "keep_header": true, "drop_header": true}

// handlerOptions say how each option's line is read. The dispenser stands at the
// option's name, and the option's errors need not name the line.
var handlerOptions = map[string]func(*Handler, *caddyfile.Dispenser) error{
	"tenant":    func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.Tenant, text) },
	"actor":     func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.Actor, text) },
	"operation": func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.Operation, text) },
	"methods":   func(h *Handler, d *caddyfile.Dispenser) error { return several(d, &h.Methods, checkMethod) },
	"key":       func(h *Handler, d *caddyfile.Dispenser) error { return h.Key.unmarshal(d) },
	"max_key_length": func(h *Handler, d *caddyfile.Dispenser) error {
		return one(d, &h.Key.MaxLength, number(1, maxKeyLength))
	},
	"max_request_body":  func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.MaxRequestBody, size) },
	"max_response_body": func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.MaxResponseBody, size) },
	"upstream_timeout":  func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.UpstreamTimeout, duration) },
	"wait":              func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.Wait, durationOr("off", -1)) },
	"replay_for":        func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.ReplayFor, duration) },
	"keep_for":          func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.KeepFor, durationOr("forever", 0)) },
	"on_status":         (*Handler).unmarshalOnStatus,
	"forward_key":       func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.ForwardKey, headerName) },
	"keep_header":       func(h *Handler, d *caddyfile.Dispenser) error { return several(d, &h.KeepHeaders, checkKeepHeader) },
	"drop_header":       func(h *Handler, d *caddyfile.Dispenser) error { return several(d, &h.DropHeaders, checkHeaderName) },
	"resource":          func(h *Handler, d *caddyfile.Dispenser) error { return one(d, &h.Resource, text) },
	"policy": func(h *Handler, d *caddyfile.Dispenser) error {
		return one(d, &h.Policy, func(s string) (string, error) { return s, checkPolicy(s) })
	},
	"fingerprint": (*Handler).unmarshalFingerprint,
}

func (s *KeySource) unmarshal(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) == 0 {
		return fmt.Errorf("nothing is said: write `header <name>`, `body <path>`, `optional` or `strict`")
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
				return fmt.Errorf("%s is not followed by anything: write `header <name>` or `body <path>`", word)
			}
			if s.Header != "" || s.Body != "" {
				return fmt.Errorf("there is one place for the key: write `header <name>` or `body <path>`, once")
			}
			if word == "body" {
				s.Body = args[0]
			} else if err := checkHeaderName(args[0]); err != nil {
				return err
			} else {
				s.Header = args[0]
			}
			args = args[1:]
		default:
			return fmt.Errorf("%q is not understood: write `header <name>`, `body <path>`, `optional` or `strict`", word)
		}
	}
	return s.checkStrict()
}

func (h *Handler) unmarshalOnStatus(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 2 {
		return fmt.Errorf("write one or more statuses and what they mean, such as `on_status 409 503 release`")
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

func (h *Handler) unmarshalFingerprint(d *caddyfile.Dispenser) error {
	rules := &h.Fingerprint
	if d.NextArg() {
		rules.Version = d.Val()
	}
	if d.NextArg() {
		return fmt.Errorf("%q is one too many: write one version, such as orders/v1", d.Val())
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		rule := d.Val()
		parse, known := fingerprintRules[rule]
		if !known {
			return fmt.Errorf("unknown rule %q: the rules are %s", rule, names(fingerprintRules))
		}
		if err := parse(rules, d); err != nil {
			return fmt.Errorf("%s: %w", rule, err)
		}
		// Compiled rule by rule, so that an error names the line of the rule.
		if _, err := canonical.Compile(*rules); err != nil {
			return err
		}
	}
	return nil
}

// fingerprintRules say how each rule's line is read. All of them add to what an
// earlier line said.
var fingerprintRules = map[string]func(*canonical.Rules, *caddyfile.Dispenser) error{
	"include": func(r *canonical.Rules, d *caddyfile.Dispenser) error { return several(d, &r.Include, nil) },
	"exclude": func(r *canonical.Rules, d *caddyfile.Dispenser) error { return several(d, &r.Exclude, nil) },
	"set":     func(r *canonical.Rules, d *caddyfile.Dispenser) error { return several(d, &r.Sets, nil) },
	"header":  func(r *canonical.Rules, d *caddyfile.Dispenser) error { return several(d, &r.Headers, checkHeaderName) },
	"default": unmarshalDefault,
	"money": func(r *canonical.Rules, d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		if len(args) != 2 {
			return fmt.Errorf("write the path of the amount and that of its currency, such as `money amount currency`")
		}
		r.Money = append(r.Money, canonical.Money{Amount: args[0], Currency: args[1]})
		return nil
	},
	"query": func(r *canonical.Rules, d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		switch {
		case len(args) == 0:
			return fmt.Errorf("write `query off`, or the names that count")
		case len(args) == 1 && args[0] == "off":
			r.Query.Off = true
		default:
			r.Query.Only = append(r.Query.Only, args...)
		}
		return nil
	},
	"max_depth": func(r *canonical.Rules, d *caddyfile.Dispenser) error {
		return one(d, &r.MaxDepth, number(1, 10_000))
	},
	"members": func(r *canonical.Rules, d *caddyfile.Dispenser) error {
		if args := d.RemainingArgs(); len(args) != 1 || args[0] != "off" {
			return fmt.Errorf("write `members off`, or leave the line out")
		}
		r.NoMembers = true
		return nil
	},
}

// unmarshalDefault reads `default <path> <value> [null]`. A quoted value is a
// string, unless it begins like an object or an array; one without quotes is a
// number, true, false or null.
func unmarshalDefault(r *canonical.Rules, d *caddyfile.Dispenser) error {
	const help = "write a path and a value, such as `default currency \"CNY\"`"
	if !d.NextArg() {
		return fmt.Errorf("%s", help)
	}
	def := canonical.Default{Path: d.Val()}
	if !d.NextArg() {
		return fmt.Errorf("%s", help)
	}
	value := d.Val()
	switch {
	case strings.HasPrefix(value, "{") || strings.HasPrefix(value, "[") || !d.Token().Quoted():
		if !json.Valid([]byte(value)) {
			return fmt.Errorf("value %s is not JSON: write a string in double quotes, and an object or a list in backticks", value)
		}
		def.Value = json.RawMessage(value)
	default:
		encoded, err := json.Marshal(value)
		if err != nil {
			return err
		}
		def.Value = encoded
	}
	if d.NextArg() {
		if d.Val() != "null" {
			return fmt.Errorf("%q is not understood: write `null` there if an explicit null counts as omitted", d.Val())
		}
		def.NullIsOmitted = true
	}
	if d.NextArg() {
		return fmt.Errorf("%q is one too many: %s", d.Val(), help)
	}
	r.Defaults = append(r.Defaults, def)
	return nil
}

// The kinds of values.

func text(s string) (string, error) {
	if s == "" {
		return "", fmt.Errorf("the value is empty: leave the line out, or write one")
	}
	return s, nil
}

func headerName(s string) (string, error) { return s, checkHeaderName(s) }

func number(from, to int) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < from || n > to {
			return 0, fmt.Errorf("%q is not a number from %d to %d", s, from, to)
		}
		return n, nil
	}
}

func size(s string) (int64, error) {
	n, err := humanize.ParseBytes(s)
	if err != nil || n == 0 || n > maxBody {
		return 0, fmt.Errorf("%q is not a size: write one such as 64KiB or 2MB, up to %s", s, humanize.IBytes(maxBody))
	}
	return int64(n), nil
}

func duration(s string) (caddy.Duration, error) {
	d, err := caddy.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a duration: write one such as 500ms, 30s or 7d", s)
	}
	return caddy.Duration(d), nil
}

// durationOr is a duration, or one word with a value of its own.
func durationOr(word string, value caddy.Duration) func(string) (caddy.Duration, error) {
	return func(s string) (caddy.Duration, error) {
		if s == word {
			return value, nil
		}
		d, err := duration(s)
		if err != nil {
			return 0, fmt.Errorf("%w, or `%s`", err, word)
		}
		return d, nil
	}
}

// one reads the only argument of a line.
func one[T any](d *caddyfile.Dispenser, value *T, parse func(string) (T, error)) error {
	args := d.RemainingArgs()
	if len(args) != 1 {
		return fmt.Errorf("there are %d values: write one", len(args))
	}
	parsed, err := parse(args[0])
	if err != nil {
		return err
	}
	*value = parsed
	return nil
}

// several reads one or more arguments of a line, and adds them.
func several(d *caddyfile.Dispenser, values *[]string, check func(string) error) error {
	args := d.RemainingArgs()
	if len(args) == 0 {
		return fmt.Errorf("there is no value: write one or more")
	}
	for _, arg := range args {
		if check != nil {
			if err := check(arg); err != nil {
				return err
			}
		}
	}
	*values = append(*values, args...)
	return nil
}
