package canonical

import (
	"bytes"
)

// currency is what the currency of a money rule was found to be, at the anchor that was entered last.
type currency struct {
	exponent int
	problem  string // why there is none
}

// anchor looks ahead for the currencies that belong to amounts under the value at i: an amount may stand before its
// currency, and is encoded when it is met. The body is not checked yet at this point, so the search puts up with
// anything; what it skips over is judged when the walk arrives there.
func (e *encoder) anchor(i int, n *node) {
	for _, m := range n.anchors {
		e.currencies[m.slot] = e.currencyAt(i, m)
	}
}

func (e *encoder) currencyAt(i int, m *moneyRule) currency {
	value, parent := e.find(i, m.currency)
	raw := e.body
	if value >= 0 && m.fill != nil && m.fill.nullIsOmitted && bytes.HasPrefix(e.body[value:], []byte("null")) {
		value, parent = -1, true
	}
	if value < 0 {
		if m.fill == nil || !parent {
			return currency{problem: "the amount has no currency in " + quoted(m.path)}
		}
		raw, value = m.fill.value, skipSpace(m.fill.value, 0)
	}
	if raw[value] != '"' {
		return currency{problem: "the currency in " + quoted(m.path) + " is no text"}
	}
	code, ok := e.shortText(raw, value)
	if !ok {
		return currency{problem: "the currency in " + quoted(m.path) + " is no ISO 4217 code"}
	}
	return currencyOf(code, m)
}

func currencyOf(code []byte, m *moneyRule) currency {
	exponent, ok := minorUnits(code)
	if !ok {
		return currency{problem: "the currency in " + quoted(m.path) + " is no ISO 4217 code with minor units"}
	}
	return currency{exponent: exponent}
}

func quoted(path string) string { return `"` + path + `"` }

// shortText decodes the text at i if it is as short as the code of a currency. An escape takes six bytes at most.
func (e *encoder) shortText(raw []byte, i int) ([]byte, bool) {
	end := skipText(raw, i)
	if end < 0 || end-i > 2+3*6 {
		return nil, false
	}
	body := e.body
	e.body, e.scratch = raw, e.scratch[:0]
	plain, _ := scanText(raw, i+1)
	next := e.decode(i+1, plain, func() {})
	e.body, e.err = body, nil
	return e.scratch, next >= 0
}

// amount encodes the amount at i in minor units.
func (e *encoder) amount(i int, m *moneyRule) int {
	b, tag, quote := e.body, byte(tagMoney), 0
	at := i
	switch c := b[i]; {
	case c == '-' || '0' <= c && c <= '9':
	case c == '"':
		// Amounts are often sent as texts. "12.50" and "12.5" are one amount; that it is a text goes on to count.
		tag, quote = tagMoneyText, 1
		if i+1 >= len(b) || b[i+1] != '-' && b[i+1]-'0' > 9 {
			return e.refuse(RuleViolated, at, "an amount is expected here")
		}
	default:
		return e.refuse(RuleViolated, at, "an amount is expected here")
	}
	d, next, reason := parseDecimal(b, i+quote)
	switch {
	case reason != "" && quote > 0:
		return e.refuse(RuleViolated, at, "an amount is expected here")
	case reason != "":
		return e.fail(next, reason)
	case quote > 0 && (next >= len(b) || b[next] != '"'):
		return e.refuse(RuleViolated, at, "an amount is expected here")
	}
	if !e.putAmount(d, tag, at, e.currencies[m.slot]) {
		return -1
	}
	return next + quote
}

func (e *encoder) putAmount(d decimal, tag byte, at int, c currency) bool {
	if c.problem != "" {
		e.refuse(RuleViolated, at, c.problem)
		return false
	}
	if d.exp += int64(c.exponent); d.exp < 0 && !d.isZero() {
		e.refuse(RuleViolated, at, "the amount has more decimals than its currency")
		return false
	}
	e.out = append(e.out, tag)
	e.putDecimal(&d)
	return true
}
