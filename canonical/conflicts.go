package canonical

import (
	"fmt"
	"slices"
)

// checkTogether refuses rules that cannot all have an effect: one on a value that another leaves out, or two that
// want one value to be of different types. Silence would let an operator believe in a rule that never acts.
func checkTogether(rules []*bodyRule) error {
	var includes, excludes []*bodyRule
	for _, r := range rules {
		switch r.rule {
		case "include":
			includes = append(includes, r)
		case "exclude":
			excludes = append(excludes, r)
		}
	}
	for _, r := range rules {
		if r.rule == "exclude" {
			continue
		}
		if err := checkCounts(r, r.segs, r.path, includes, excludes); err != nil {
			return err
		}
		if r.money != nil {
			currency := slices.Concat(r.segs[:r.money.shared], r.money.currency)
			if err := checkCounts(r, currency, r.money.path, includes, excludes); err != nil {
				return err
			}
		}
	}
	return checkTypes(rules)
}

func checkCounts(r *bodyRule, segs []segment, path string, includes, excludes []*bodyRule) error {
	for _, ex := range excludes {
		if covers(ex.segs, segs) {
			return &RuleError{r.rule, path, fmt.Sprintf("exclude %q leaves it out", ex.path), "leave out one of the two rules"}
		}
	}
	if len(includes) == 0 || r.rule == "include" {
		return nil
	}
	for _, in := range includes {
		if covers(in.segs, segs) || r.money == nil && covers(segs, in.segs) {
			return nil
		}
	}
	return &RuleError{r.rule, path, "no include names it", "include it as well, or leave the rule out"}
}

// shape is what a rule needs a value to be.
type shape struct {
	kind       string
	rule, path string
}

func checkTypes(rules []*bodyRule) error {
	shapes := map[string]shape{}
	want := func(segs []segment, kind, rule, path string) error {
		where := ""
		for _, s := range segs {
			if s.every {
				where += "#\x00"
			} else {
				where += "." + s.name + "\x00"
			}
		}
		old, ok := shapes[where]
		if ok && old.kind != kind {
			return &RuleError{rule, path, fmt.Sprintf("it needs %s where %s %q needs %s", kind, old.rule, old.path, old.kind),
				"one of the two paths cannot exist; correct it"}
		}
		shapes[where] = shape{kind, rule, path}
		return nil
	}
	walk := func(segs []segment, rule, path string) error {
		for i, s := range segs {
			kind := "an object"
			if s.every {
				kind = "an array"
			} else if _, ok := s.index(); ok {
				continue // a number may name a member or an element
			}
			if err := want(segs[:i], kind, rule, path); err != nil {
				return err
			}
		}
		return nil
	}
	for _, r := range rules {
		if err := walk(r.segs, r.rule, r.path); err != nil {
			return err
		}
		var err error
		switch r.rule {
		case "set":
			err = want(r.segs, "an array", r.rule, r.path)
		case "money":
			currency := slices.Concat(r.segs[:r.money.shared], r.money.currency)
			if err = walk(currency, r.rule, r.money.path); err == nil {
				err = want(r.segs, "an amount", r.rule, r.path)
			}
			if err == nil {
				err = want(currency, "a currency", r.rule, r.money.path)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
