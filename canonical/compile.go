package canonical

import (
	"fmt"
	"net/textproto"
	"slices"
	"strings"
	"sync"
)

// Policy is a compiled set of rules. It never changes, and any number of goroutines may use it.
type Policy struct {
	version  string
	root     *node // nil when no rule looks into the body
	headers  []string
	query    Query
	maxDepth int
	maxBody  int64
	members  bool
	key      memberKey
	slots    int // how many currencies must be remembered at once

	encoders sync.Pool
}

// Compile checks the rules and prepares them. Its error is a *RuleError.
func Compile(r Rules) (*Policy, error) {
	p := &Policy{version: r.Version, query: r.Query, maxDepth: r.MaxDepth, maxBody: r.MaxBody, members: !r.NoMembers}
	p.key = newMemberKey(r.MemberKey)
	switch {
	case p.maxDepth == 0:
		p.maxDepth = defaultMaxDepth
	case p.maxDepth < 0 || p.maxDepth > mostMaxDepth:
		return nil, &RuleError{"max_depth", fmt.Sprint(r.MaxDepth), "it is out of range",
			fmt.Sprintf("write 1 to %d, or leave it out for %d", mostMaxDepth, defaultMaxDepth)}
	}
	switch {
	case p.maxBody == 0:
		p.maxBody = defaultMaxBody
	case p.maxBody < 0 || p.maxBody > mostMaxBody:
		return nil, &RuleError{"max_body", fmt.Sprint(r.MaxBody), "it is out of range",
			fmt.Sprintf("write 1 to %d, or leave it out for %d", mostMaxBody, defaultMaxBody)}
	}
	if err := p.compileQuery(r.Query); err != nil {
		return nil, err
	}
	if err := p.compileHeaders(r.Headers); err != nil {
		return nil, err
	}
	rules, err := parseRules(r, p.maxDepth)
	if err != nil {
		return nil, err
	}
	if err := checkTogether(rules); err != nil {
		return nil, err
	}
	for _, b := range rules {
		if b.money != nil {
			b.money.slot = p.slots
			p.slots++
		}
	}
	if len(rules) > 0 {
		p.root = grow(rules, 0, len(r.Include) == 0)
	}
	return p, nil
}

func (p *Policy) compileQuery(q Query) error {
	if q.Off && len(q.Only) > 0 {
		return &RuleError{"query", q.Only[0], "the query is off and named at once", "write either of the two"}
	}
	p.query.Only = slices.Clone(q.Only)
	for _, name := range q.Only {
		if name == "" {
			return &RuleError{"query", name, "a name is empty", `write the decoded name, for example "page"`}
		}
	}
	return nil
}

func (p *Policy) compileHeaders(names []string) error {
	for _, name := range names {
		if !isToken(name) {
			return &RuleError{"header", name, "it is not a header's name", `write it without a colon, for example "Prefer"`}
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		if name == "Content-Type" || name == "Content-Encoding" {
			return &RuleError{"header", name, "the media type and the decoded body count already", "leave it out"}
		}
		if !slices.Contains(p.headers, name) {
			p.headers = append(p.headers, name)
		}
	}
	slices.Sort(p.headers)
	return nil
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// bodyRule is one rule of the body on its way into the tree of nodes.
type bodyRule struct {
	rule string // as RuleError names it
	path string // as it was written
	segs []segment

	fill  *fill
	money *moneyRule
}

// fill is a default: the value that its member has when it is omitted.
type fill struct {
	name          []byte
	value         []byte
	nullIsOmitted bool
}

// moneyRule is an amount and where to find its currency: from the anchor, the last value that both paths share, the
// remaining steps lead to exactly one currency.
type moneyRule struct {
	slot     int
	shared   int // steps from the root to the anchor
	currency []segment
	path     string // of the currency, as written
	fill     *fill  // the currency's default
}

func parseRules(r Rules, maxDepth int) ([]*bodyRule, error) {
	var rules []*bodyRule
	add := func(rule, path string) (*bodyRule, error) {
		segs, err := parsePath(rule, path)
		if err != nil {
			return nil, err
		}
		if len(segs) > maxDepth {
			return nil, &RuleError{rule, path, fmt.Sprintf("no body may be nested deeper than %d", maxDepth), "raise max_depth"}
		}
		b := &bodyRule{rule: rule, path: path, segs: segs}
		for _, other := range rules {
			if other.rule == rule && slices.Equal(other.segs, segs) {
				return nil, &RuleError{rule, path, "it is written twice", "leave one out"}
			}
		}
		rules = append(rules, b)
		return b, nil
	}
	for _, list := range []struct {
		rule  string
		paths []string
	}{{"include", r.Include}, {"exclude", r.Exclude}} {
		for _, path := range list.paths {
			b, err := add(list.rule, path)
			if err != nil {
				return nil, err
			}
			if b.segs[len(b.segs)-1].every {
				return nil, &RuleError{list.rule, path, `it ends in "#"`, "name the whole array, or a member of its elements"}
			}
		}
	}
	for _, path := range r.Sets {
		if _, err := add("set", path); err != nil {
			return nil, err
		}
	}
	for _, d := range r.Defaults {
		b, err := add("default", d.Path)
		if err != nil {
			return nil, err
		}
		last := b.segs[len(b.segs)-1]
		if last.every {
			return nil, &RuleError{"default", d.Path, `it ends in "#"`, "only a member of an object has a default; name it"}
		}
		if _, err := CanonicalJSON(d.Value); err != nil {
			return nil, &RuleError{"default", d.Path, "its value is not JSON (" + err.Error() + ")", `write a value such as "CNY", 0 or true`}
		}
		b.fill = &fill{[]byte(last.name), slices.Clone(d.Value), d.NullIsOmitted}
	}
	for _, m := range r.Money {
		b, err := add("money", m.Amount)
		if err != nil {
			return nil, err
		}
		if b.money, err = parseCurrency(b, m.Currency, rules); err != nil {
			return nil, err
		}
	}
	return rules, nil
}

func parseCurrency(amount *bodyRule, path string, rules []*bodyRule) (*moneyRule, error) {
	segs, err := parsePath("money", path)
	if err != nil {
		return nil, err
	}
	shared := 0
	for shared < len(segs) && shared < len(amount.segs) && segs[shared] == amount.segs[shared] {
		shared++
	}
	rest := segs[shared:]
	if len(rest) == 0 || shared == len(amount.segs) {
		return nil, &RuleError{"money", path, fmt.Sprintf("amount %q and currency are not two values", amount.path), "name the member that holds the currency"}
	}
	for _, s := range rest {
		if s.every {
			return nil, &RuleError{"money", path, fmt.Sprintf("amount %q would have many currencies", amount.path),
				`let both paths be the same up to the last "#" of the currency`}
		}
	}
	m := &moneyRule{shared: shared, currency: rest, path: path}
	for _, b := range rules {
		if b.fill != nil && slices.Equal(b.segs, segs) {
			m.fill = b.fill
		}
	}
	return m, nil
}

// node is the rules of one value of the body, and those of the values under it.
type node struct {
	members []child // of an object, by name
	indexed map[int]*node
	each    *node // of an array, for elements without a node of their own

	drop         bool // an exclude ends here
	onlyMembers  bool // an include names members under this object: the others do not count
	onlyElements bool // likewise for the elements of this array
	set          bool
	money        *moneyRule
	fills        []fill
	anchors      []*moneyRule
}

type child struct {
	name string
	node *node
}

func (n *node) member(name []byte) *node {
	for i := range n.members {
		if n.members[i].name == string(name) {
			return n.members[i].node
		}
	}
	return nil
}

func (n *node) element(i int) *node {
	if child, ok := n.indexed[i]; ok {
		return child
	}
	return n.each
}

// grow makes the node that all these rules reach after depth steps. Rules that reach one value by different steps
// ("items.#.note" and "items.0.tag" both reach the first item) are brought together here, so that the walk through a
// body never has to follow more than one node.
func grow(rules []*bodyRule, depth int, included bool) *node {
	n := &node{}
	var deeper []*bodyRule
	for _, r := range rules {
		if r.money != nil && r.money.shared == depth {
			n.anchors = append(n.anchors, r.money)
		}
		if depth < len(r.segs) {
			deeper = append(deeper, r)
			continue
		}
		switch r.rule {
		case "exclude":
			n.drop = true
		case "include":
			included = true
		case "set":
			n.set = true
		case "money":
			n.money = r.money
		}
	}
	counts := func(group []*bodyRule) bool {
		return included || slices.ContainsFunc(group, func(r *bodyRule) bool { return r.rule == "include" })
	}
	group := func(match func(segment) bool) []*bodyRule {
		var g []*bodyRule
		for _, r := range deeper {
			if match(r.segs[depth]) {
				g = append(g, r)
			}
		}
		return g
	}
	if g := group(func(s segment) bool { return s.every }); len(g) > 0 && counts(g) {
		n.each = grow(g, depth+1, included)
		n.onlyElements = !included
	}
	done := map[string]bool{}
	for _, r := range deeper {
		step := r.segs[depth]
		if step.every || done[step.name] {
			continue
		}
		done[step.name] = true
		if g := group(func(s segment) bool { return s == step }); counts(g) {
			n.members = append(n.members, child{step.name, grow(g, depth+1, included)})
			n.onlyMembers = !included
			for _, r := range g {
				if r.fill != nil && len(r.segs) == depth+1 {
					n.fills = append(n.fills, *r.fill)
				}
			}
		}
		if i, ok := step.index(); ok {
			if g := group(func(s segment) bool { return s.every || s == step }); counts(g) {
				if n.indexed == nil {
					n.indexed = map[int]*node{}
				}
				n.indexed[i] = grow(g, depth+1, included)
				n.onlyElements = !included
			}
		}
	}
	return n
}
