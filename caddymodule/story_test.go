package caddymodule_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// story is what a failing test prints: what was sent and what came back, in the
// order in which it happened.
type story struct {
	mu    sync.Mutex
	begun time.Time
	lines []string
}

func (s *story) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun.IsZero() {
		s.begun = time.Now()
	}
	s.lines = append(s.lines, fmt.Sprintf("%7.3fs ", time.Since(s.begun).Seconds())+fmt.Sprintf(format, args...))
}

// print shows the story with what the record, the upstream and Caddy's log say.
func (g *gateway) print(t *testing.T) {
	var text strings.Builder
	g.story.mu.Lock()
	for _, line := range lastOf(g.story.lines, 60) {
		fmt.Fprintln(&text, line)
	}
	g.story.mu.Unlock()

	fmt.Fprintln(&text, "records:")
	records, err := g.store.load()
	if err != nil {
		fmt.Fprintln(&text, "  ", err)
	}
	for _, r := range lastOf(records, 20) {
		fmt.Fprintln(&text, "  ", r)
	}
	if g.upstream != nil {
		fmt.Fprintf(&text, "upstream: %+v\n", g.upstream.Stats())
		for _, e := range lastOf(g.upstream.Executions(), 20) {
			fmt.Fprintf(&text, "   %+v\n", e)
		}
	}
	for i, p := range g.processes {
		fmt.Fprintf(&text, "log of process %d:\n", i+1)
		for _, line := range lastOf(p.log.all(), 120) {
			fmt.Fprintln(&text, "  ", line)
		}
	}
	t.Logf("the story:\n%s", text.String())
}

func lastOf[T any](all []T, n int) []T { return all[max(0, len(all)-n):] }

// short is a body as a story shows it.
func short(body []byte) string {
	const most = 160
	if len(body) > most {
		return fmt.Sprintf("%q… (%d bytes)", body[:most], len(body))
	}
	return fmt.Sprintf("%q", body)
}
