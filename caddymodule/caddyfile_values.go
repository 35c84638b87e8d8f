package caddymodule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
)

// The kinds of values of the options, each with what is allowed and what to write.

// one reads the only argument of a line.
func one[T any](d *caddyfile.Dispenser, value *T, parse func(string) (T, error)) error {
	switch args := d.RemainingArgs(); len(args) {
	case 0:
		return errors.New("there is no value: write one")
	case 1:
		parsed, err := parse(args[0])
		if err != nil {
			return err
		}
		*value = parsed
		return nil
	default:
		return fmt.Errorf("there %s, %s: write one, in quotes if it has spaces", count(args), quoted(args))
	}
}

// several reads one or more arguments of a line, and adds them.
func several(d *caddyfile.Dispenser, values *[]string, check func(string) error) error {
	args := d.RemainingArgs()
	if len(args) == 0 {
		return errors.New("there is no value: write one or more")
	}
	for _, arg := range args {
		if err := check(arg); err != nil {
			return err
		}
	}
	*values = append(*values, args...)
	return nil
}

// flag reads an option without a value.
func flag(d *caddyfile.Dispenser, set *bool) error {
	if args := d.RemainingArgs(); len(args) > 0 {
		return fmt.Errorf("%s is too much, since it takes no value: write the name alone", quoted(args))
	}
	*set = true
	return nil
}

func count(args []string) string {
	switch len(args) {
	case 0:
		return "is no value"
	case 1:
		return "is one value"
	default:
		return fmt.Sprintf("are %d values", len(args))
	}
}

func quoted(values []string) string {
	list := make([]string, len(values))
	for i, value := range values {
		list[i] = strconv.Quote(value)
	}
	return strings.Join(list, " ")
}

// checked makes a parser of a check: the value is what was written.
func checked(check func(string) error) func(string) (string, error) {
	return func(s string) (string, error) { return s, check(s) }
}

var text = checked(checkText)

func checkText(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("the value is empty: write one, or leave the line out")
	}
	return nil
}

// scopePart is a value of tenant, actor or operation; what its placeholders are
// worth is seen when it is provisioned.
var scopePart = checked(checkScopeText)

func number(from, to int) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < from || n > to {
			return 0, fmt.Errorf("%q is not a number from %d to %d%s", s, from, to, placeholderHelp(s))
		}
		return n, nil
	}
}

// size is 1 byte at least: 0, which means the default in JSON, is more likely
// meant to be "none" or "no limit", and there is neither.
func size(s string) (int64, error) {
	n, err := humanize.ParseBytes(s)
	if err != nil || n == 0 || n > maxBody {
		return 0, fmt.Errorf("%q is not a size from 1 to %s: write one such as 64KiB or 2MB%s", s, humanize.IBytes(maxBody), placeholderHelp(s))
	}
	return int64(n), nil
}

func duration(within durationRange) func(string) (caddy.Duration, error) {
	return func(s string) (caddy.Duration, error) {
		d, err := caddy.ParseDuration(s)
		switch {
		case err != nil && isNumber(s):
			return 0, fmt.Errorf("%q has no unit: write one such as %ss or %sm", s, s, s)
		case err != nil || !within.has(d):
			return 0, fmt.Errorf("%q is not a duration from %s: write one such as %s%s", s, within, within.example, placeholderHelp(s))
		}
		return caddy.Duration(d), nil
	}
}

// durationOr is a duration, or one word with a value of its own.
func durationOr(word string, value caddy.Duration, within durationRange) func(string) (caddy.Duration, error) {
	return func(s string) (caddy.Duration, error) {
		if s == word {
			return value, nil
		}
		d, err := duration(within)(s)
		if err != nil {
			return 0, fmt.Errorf("%w, or `%s`", err, word)
		}
		return d, nil
	}
}

func isNumber(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n > 0
}

// placeholderHelp explains why a placeholder of run time is not a number.
func placeholderHelp(s string) string {
	name, found := strings.CutPrefix(s, "{env.")
	if !found {
		return ""
	}
	return fmt.Sprintf("; {env.*} is not resolved here, {$%s is, before the Caddyfile is read", name)
}

// durationRange is what a duration can be.
type durationRange struct {
	from, to time.Duration
	example  string
}

// Ranges of the options. What is shorter than a millisecond is most likely a bare
// number in JSON, which is in nanoseconds.
var (
	rangeUpstreamTimeout = durationRange{time.Millisecond, 24 * time.Hour, "30s or 2m"}
	rangeWait            = durationRange{time.Millisecond, 24 * time.Hour, "500ms or 5s"}
	rangeSweep           = durationRange{time.Millisecond, time.Hour, "5s or 1m"}
	rangeStoreCall       = durationRange{time.Millisecond, 10 * time.Minute, "500ms or 5s"}
	// A hundred years: replay window and tombstone after one another are still within
	// the 292 years that Go's durations can count.
	rangeRetention = durationRange{time.Millisecond, 36_500 * day, "24h or 7d"}
)

const day = 24 * time.Hour

func (r durationRange) has(d time.Duration) bool { return r.from <= d && d <= r.to }

func (r durationRange) String() string { return brief(r.from) + " to " + brief(r.to) }

// brief is a duration without the zeros that String ends with.
func brief(d time.Duration) string {
	if d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
