package caddymodule

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// readOption reads one line of a block into its target. The dispenser stands at
// the option's name.
type readOption[T any] func(target T, d *caddyfile.Dispenser) error

// block is a list of options in braces, of which each has a line or a block.
type block[T any] struct {
	of         string // the block, for the errors
	prefix     string // of an option, for the errors; the option alone if empty
	options    map[string]readOption[T]
	repeatable []string // options that add to what an earlier line said
}

// readBlock reads the block that the line opens, if it does. Its errors carry file
// and line.
func readBlock[T any](d *caddyfile.Dispenser, b block[T], target T) error {
	lines := make(map[string]int)
	last := ""
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		option := d.Val()
		read, known := b.options[option]
		switch first, there := lines[option]; {
		case option == "{" && !d.Token().Quoted():
			return placed(d, fmt.Errorf("%s takes no block: write it on one line, without {", b.prefix+last))
		case !known:
			return placed(d, fmt.Errorf("unknown option %q: %s takes %s", option, b.of, names(b.options)))
		case there && !slices.Contains(b.repeatable, option):
			return placed(d, fmt.Errorf("%s is there twice, first in line %d: leave one", b.prefix+option, first))
		case closesOnLine(d):
			return placed(d, fmt.Errorf("%s is followed by }: write } on a line of its own, or in quotes if it is meant as a value", b.prefix+option))
		}
		lines[option], last = d.Line(), option
		if err := read(target, d); err != nil {
			return located(d, b.prefix+option, err)
		}
	}
	return nil
}

// closesOnLine reports whether a brace that should close the block stands among the
// arguments of the line. Caddy takes it for one of them.
func closesOnLine(d *caddyfile.Dispenser) bool {
	line := *d // so that the arguments are still there
	return slices.ContainsFunc(line.RemainingArgsAsTokens(), func(token caddyfile.Token) bool {
		return token.Text == "}" && !token.Quoted()
	})
}

// placedError already names its line.
type placedError struct{ error }

func (e placedError) Unwrap() error { return e.error }

// located adds file, line and option to an error of an option's value, unless it
// comes from a line inside of the option's own block.
func located(d *caddyfile.Dispenser, option string, err error) error {
	if there := (placedError{}); errors.As(err, &there) {
		return err
	}
	return placed(d, fmt.Errorf("%s: %w", option, err))
}

func placed(d *caddyfile.Dispenser, err error) error { return placedError{d.WrapErr(err)} }

// errorAt adds the place of a token that has been read before.
func errorAt(token caddyfile.Token, err error) error {
	at := caddyfile.NewDispenser([]caddyfile.Token{token})
	at.Next()
	return placed(at, err)
}

// names lists the names of options in order, for an error's text.
func names[T any](options map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(options)), ", ")
}
