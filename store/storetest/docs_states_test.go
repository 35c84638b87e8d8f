package storetest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-idempotency/caddy-idempotency/store"
)

// TestStatesPageShowsEveryTransition compares the table and the diagram of
// docs/states.md, and the list in package store's comment, with the table that
// every engine is tested against.
func TestStatesPageShowsEveryTransition(t *testing.T) {
	table := transitionsIn(t, "../../docs/states.md", `(?m)^\| ([^|]+) \| ([a-z ]+) \| ([^|]+) \| [^|]+ \|$`)
	require.Equal(t, allowed, table, "the table")

	// The repeated claim moves nothing, and is left out where movement is drawn.
	moves := map[edge]store.State{}
	for e, to := range allowed {
		if e.from != to {
			moves[e] = to
		}
	}
	diagram := transitionsIn(t, "../../docs/states.md", `(?m)^    (\S+) -->() (\S+): ([a-z ]+)$`)
	require.Equal(t, moves, diagram, "the diagram")

	comment := transitionsIn(t, "../doc.go", `(?m)^//\t(\(no record\)|[a-z]+) +--([a-z ]+?)-+> (.+)$`)
	require.Equal(t, moves, comment, "the package comment")
}

// transitionsIn reads transitions by an expression whose groups are from,
// transition and to; a transition that is named last leaves the second one empty.
func transitionsIn(t *testing.T, file, expression string) map[edge]store.State {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	found := map[edge]store.State{}
	for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(string(text), -1) {
		transition := m[2]
		if transition == "" {
			transition = m[4]
		}
		from, isState := stateNamed(m[1])
		if !isState {
			continue // the head of the table
		}
		to, isState := stateNamed(m[3])
		require.True(t, isState, "%s: %q", file, m[0])
		found[edge{from, transition}] = to
	}
	return found
}

func stateNamed(text string) (store.State, bool) {
	text = strings.Trim(text, "`")
	if text == "(no record)" || text == "[*]" {
		return nothing, true
	}
	return store.State(text), store.State(text).Known()
}
