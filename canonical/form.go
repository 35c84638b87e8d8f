package canonical

import "bytes"

// form encodes a body of application/x-www-form-urlencoded.
func (e *encoder) form() {
	start, first := len(e.out), len(e.entries)
	e.out = append(e.out, tagForm)
	if e.pairs(e.body, 0, false) {
		e.fields(start, first)
	}
}

// fields applies the rules to the fields of a form, which are the entries since first, and encodes them sorted by
// name. Only a path of one name can name a field; it names all fields of that name.
func (e *encoder) fields(start, first int) {
	n := e.policy.root
	if n != nil && !e.ruleFields(n, first) {
		return
	}
	e.sortPairs(e.entries[first:], n)
	e.addPairs(PartMember, e.entries[first:])
	e.close(start, first, false, tagFormDigest)
}

func (e *encoder) ruleFields(n *node, first int) bool {
	for i := range n.fills {
		f := &n.fills[i]
		if e.field(first, string(f.name)) == nil && string(bytes.TrimSpace(f.value)) != "null" { // a form has no null
			at := len(e.out)
			e.putName(f.name)
			e.putText(e.fieldValue(f.value))
			e.entries = append(e.entries, entry{sortKey(f.name), at, len(e.out)})
		}
	}
	for _, m := range n.anchors {
		if len(m.currency) == 1 {
			e.currencies[m.slot] = e.fieldCurrency(first, m)
		}
	}
	kept := e.entries[first:first]
	for _, f := range e.entries[first:] {
		name, value := e.nameAt(f.start)
		rules := n.member(name)
		switch {
		case rules == nil && n.onlyMembers, rules != nil && rules.drop:
			continue
		case rules != nil && rules.money != nil && len(rules.money.currency) == 1 && e.out[value] != tagPart:
			var ok bool
			if f, ok = e.fieldAmount(f, rules.money); !ok {
				return false
			}
		}
		kept = append(kept, f)
	}
	e.entries = e.entries[:first+len(kept)]
	return true
}

// fieldValue is a default as a field has it: the text itself, or the JSON of anything else.
func (e *encoder) fieldValue(value []byte) []byte {
	value = bytes.TrimSpace(value)
	if value[0] != '"' {
		return value
	}
	body := e.body
	e.body, e.scratch = value, e.scratch[:0]
	plain, _ := scanText(value, 1)
	e.decode(1, plain, func() {})
	e.body = body
	return e.scratch
}

// field returns the text of the first field with that name, or nil.
func (e *encoder) field(first int, name string) []byte {
	for _, f := range e.entries[first:] {
		if is, value := e.nameAt(f.start); string(is) == name {
			return e.out[value:f.end]
		}
	}
	return nil
}

func (e *encoder) fieldCurrency(first int, m *moneyRule) currency {
	switch value := e.field(first, m.currency[0].name); {
	case value == nil:
		return currency{problem: "the amount has no currency in " + quoted(m.path)}
	case value[0] != tagText || len(value) != 2+3:
		return currency{problem: "the currency in " + quoted(m.path) + " is no ISO 4217 code"}
	default:
		return currencyOf(value[2:], m)
	}
}

// fieldAmount encodes a field again, now in minor units.
func (e *encoder) fieldAmount(f entry, m *moneyRule) (entry, bool) {
	name, value := e.nameAt(f.start)
	text, ok := e.textAt(value)
	if ok && len(text) > 0 && (text[0] == '-' || text[0]-'0' <= 9) {
		if d, next, reason := parseDecimal(text, 0); reason == "" && next == len(text) {
			at := len(e.out)
			e.putName(name)
			if !e.putAmount(d, tagMoneyText, -1, e.currencies[m.slot]) {
				e.inName(name, -1)
				return f, false
			}
			return entry{f.key, at, len(e.out)}, true
		}
	}
	e.inName(name, e.refuse(RuleViolated, -1, "an amount is expected here"))
	return f, false
}

// textAt returns the encoded text at that position of out, unless it was collapsed.
func (e *encoder) textAt(at int) ([]byte, bool) {
	if e.out[at] != tagText {
		return nil, false
	}
	n, size := uvarintAt(e.out, at+1)
	return e.out[at+1+size:][:n], true
}
