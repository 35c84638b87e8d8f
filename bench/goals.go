package main

import "fmt"

// goal is a figure that was decided before it was measured.
type goal struct {
	Work, Store string
	Limit       float64
	AtLeast     bool // the figure must not be below the limit; else not above it
	Got         spread
	Unit        string // printed behind each figure
	Format      string // of one figure, such as %.2f
}

// verdict of a goal.
type verdict string

const (
	met    verdict = "met"
	within verdict = "within the spread"
	missed verdict = "missed"
)

// verdict is missed only if the limit lies beyond the printed spread: two runs on
// one machine differ by as much.
func (g goal) verdict() verdict {
	value, best, limit := g.Got.Median, g.Got.High, g.Limit
	if !g.AtLeast {
		value, best, limit = -value, -g.Got.Low, -limit
	}
	switch {
	case value >= limit:
		return met
	case best >= limit:
		return within
	}
	return missed
}

func (g goal) limit() string {
	sign := "≤ "
	if g.AtLeast {
		sign = "≥ "
	}
	return sign + fmt.Sprintf(g.Format, g.Limit) + g.Unit
}

func (g goal) got() string { return g.Got.format(g.Format) + g.Unit }

// format prints the median, and the spread where there is one.
func (s spread) format(format string) string {
	if s.Low == s.High {
		return fmt.Sprintf(format, s.Median)
	}
	return fmt.Sprintf(format+" ("+format+" to "+format+")", s.Median, s.Low, s.High)
}
