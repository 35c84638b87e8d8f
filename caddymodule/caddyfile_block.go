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
	of         string // for the errors
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
			return d.Errf("%s of %s takes no block: close the line before {", last, b.of)
		case !known:
			return d.Errf("unknown option %q: the options of %s are %s", option, b.of, names(b.options))
		case there && !slices.Contains(b.repeatable, option):
			return d.Errf("%s of %s is there twice, first in line %d: leave one", option, b.of, first)
		}
		lines[option], last = d.Line(), option
		if err := read(target, d); err != nil {
			return located(d, option, err)
		}
	}
	return nil
}

// placedError already names its line.
type placedError struct{ error }

func (e placedError) Unwrap() error { return e.error }

// located adds file, line and option to an error of an option's value, unless it
// comes from a line inside of the option's own block.
func located(d *caddyfile.Dispenser, option string, err error) error {
	if placed := (placedError{}); errors.As(err, &placed) {
		return err
	}
	return placedError{d.WrapErr(fmt.Errorf("%s: %w", option, err))}
}

// errorAt adds the place of a token that has been read before.
func errorAt(token caddyfile.Token, err error) error {
	at := caddyfile.NewDispenser([]caddyfile.Token{token})
	at.Next()
	return placedError{at.WrapErr(err)}
}

// names lists the names of options in order, for an error's text.
func names[T any](options map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(options)), ", ")
}
