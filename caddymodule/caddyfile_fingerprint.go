package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-idempotency/caddy-idempotency/canonical"
)

// fingerprintBlock reads the rules, and notes where each stands: they are checked
// together when the block is closed, as a rule may need one of a later line.
type fingerprintBlock struct {
	*canonical.Rules
	lines []ruleLine
}

type ruleLine struct {
	rule string
	args []string
	at   caddyfile.Token
}

func unmarshalFingerprint(rules *canonical.Rules, d *caddyfile.Dispenser) error {
	directive := d.Token()
	if d.NextArg() {
		rules.Version = d.Val()
		if err := checkVersion(rules.Version); err != nil {
			return err
		}
	}
	if d.NextArg() {
		return fmt.Errorf("%q is one too many: write one version, such as orders/v1", d.Val())
	}
	b := &fingerprintBlock{Rules: rules}
	if err := readBlock(d, block[*fingerprintBlock]{
		of: "fingerprint", prefix: "fingerprint rule ", options: b.noting(), repeatable: []string{"include", "exclude", "default", "money", "set", "header"},
	}, b); err != nil {
		return err
	}
	if _, err := canonical.Compile(*rules); err != nil {
		return errorAt(b.lineOf(err, directive), err)
	}
	return nil
}

// noting returns the rules' readers, which note their lines as well.
func (b *fingerprintBlock) noting() map[string]readOption[*fingerprintBlock] {
	options := make(map[string]readOption[*fingerprintBlock], len(fingerprintRules))
	for rule, read := range fingerprintRules {
		options[rule] = func(b *fingerprintBlock, d *caddyfile.Dispenser) error {
			line := *d // whose arguments are still to be read
			b.lines = append(b.lines, ruleLine{rule, line.RemainingArgs(), d.Token()})
			return read(b.Rules, d)
		}
	}
	return options
}

// lineOf finds the last line of the rule that an error is about.
func (b *fingerprintBlock) lineOf(err error, fallback caddyfile.Token) caddyfile.Token {
	var wrong *canonical.RuleError
	if errors.As(err, &wrong) {
		for i := len(b.lines) - 1; i >= 0; i-- {
			if line := b.lines[i]; line.rule == wrong.Rule && containsOrEmpty(line.args, wrong.Path) {
				return line.at
			}
		}
	}
	return fallback
}

func containsOrEmpty(args []string, path string) bool {
	for _, arg := range args {
		if arg == path {
			return true
		}
	}
	return path == ""
}

// fingerprintRules say how each rule's line is read.
var fingerprintRules = map[string]readOption[*canonical.Rules]{
	"include": func(r *canonical.Rules, d *caddyfile.Dispenser) error { return several(d, &r.Include, checkText) },
	"exclude": func(r *canonical.Rules, d *caddyfile.Dispenser) error { return several(d, &r.Exclude, checkText) },
	"set":     func(r *canonical.Rules, d *caddyfile.Dispenser) error { return several(d, &r.Sets, checkText) },
	"header":  func(r *canonical.Rules, d *caddyfile.Dispenser) error { return several(d, &r.Headers, checkHeaderName) },
	"default": unmarshalDefault,
	"money": func(r *canonical.Rules, d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		if len(args) != 2 {
			return fmt.Errorf("there %s: write the path of the amount and that of its currency, such as `money amount currency`", count(args))
		}
		r.Money = append(r.Money, canonical.Money{Amount: args[0], Currency: args[1]})
		return nil
	},
	"query": func(r *canonical.Rules, d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		switch {
		case len(args) == 0:
			return errors.New("there is no value: write `query off`, or the names that count")
		case len(args) == 1 && args[0] == "off" && !d.Token().Quoted():
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
		return one(d, &r.NoMembers, func(s string) (bool, error) {
			if s != "off" {
				return false, fmt.Errorf("%q is not known: write off, or leave the line out", s)
			}
			return true, nil
		})
	},
}

const defaultHelp = "write a path and a value, such as `default currency \"CNY\"`"

// unmarshalDefault reads `default <path> <value> [null]`. A value without quotes is
// a number, true, false or null. One with quotes is a string, unless it begins as
// JSON does ({, [ or "), which it can only between backticks or in a heredoc.
func unmarshalDefault(r *canonical.Rules, d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return errors.New("there is no value: " + defaultHelp)
	}
	def := canonical.Default{Path: d.Val()}
	if !d.NextArg() {
		return errors.New("there is no value after the path: " + defaultHelp)
	}
	value := d.Val()
	switch {
	case !d.Token().Quoted() || value != "" && strings.ContainsRune(`{["`, rune(value[0])):
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
		return fmt.Errorf("%q is one too many: %s", d.Val(), defaultHelp)
	}
	r.Defaults = append(r.Defaults, def)
	return nil
}
