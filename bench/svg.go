package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// plot is bars in groups, each with a whisker for its spread.
type plot struct {
	Name       string // of the file
	Title      string
	XTitle     string
	Categories []string // one group of bars each
	Series     []series // one bar in each group
	Line       float64  // a value to compare with; 0 for none
}

type series struct {
	Name   string
	Values []spread
}

const (
	plotWidth, plotHeight = 720.0, 360.0
	marginLeft, marginTop = 56.0, 36.0
	marginRight           = 16.0
	marginBottom          = 44.0
	legendHeight          = 18.0
)

var colours = []string{"#2f6db3", "#d9822b", "#4d9a5b", "#b0413e", "#7a5ea8", "#6b7280"}

func (p plot) svg() string {
	top := marginTop + legendHeight*float64((len(p.Series)+2)/3)
	bottom, right := plotHeight-marginBottom, plotWidth-marginRight
	highest := p.Line
	for _, s := range p.Series {
		for _, v := range s.Values {
			highest = max(highest, v.High)
		}
	}
	step := niceStep(highest / 5)
	highest = math.Ceil(highest/step) * step
	y := func(value float64) float64 { return bottom - value/highest*(bottom-top) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="%g" height="%g" fill="#ffffff"/>`+"\n", plotWidth, plotHeight)
	text := func(x, y float64, anchor, what string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="#222222">%s</text>`+"\n", x, y, anchor, html.EscapeString(what))
	}
	line := func(x1, y1, x2, y2 float64, colour string) {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, colour)
	}

	text(plotWidth/2, 20, "middle", p.Title)
	text((marginLeft+right)/2, plotHeight-8, "middle", p.XTitle)
	for value := 0.0; value <= highest+step/2; value += step {
		line(marginLeft, y(value), right, y(value), "#dddddd")
		text(marginLeft-6, y(value)+4, "end", fmt.Sprintf("%.4g", value))
	}
	for i, s := range p.Series {
		x, y := marginLeft+float64(i%3)*220, marginTop+float64(i/3)*legendHeight
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="10" height="10" fill="%s"/>`+"\n", x, y-9, colours[i%len(colours)])
		text(x+15, y, "start", s.Name)
	}
	group := (right - marginLeft) / float64(len(p.Categories))
	bar := group * 0.8 / float64(len(p.Series))
	for c, category := range p.Categories {
		left := marginLeft + float64(c)*group + group*0.1
		text(left+group*0.4, bottom+16, "middle", category)
		for i, s := range p.Series {
			if c >= len(s.Values) {
				continue
			}
			v, x := s.Values[c], left+float64(i)*bar
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x+1, y(v.Median), bar-2, bottom-y(v.Median), colours[i%len(colours)])
			line(x+bar/2, y(v.Low), x+bar/2, y(v.High), "#222222")
		}
	}
	if p.Line > 0 {
		line(marginLeft, y(p.Line), right, y(p.Line), "#222222")
	}
	line(marginLeft, bottom, right, bottom, "#222222")
	b.WriteString("</svg>\n")
	return b.String()
}

// niceStep is the next of 1, 2 and 5 times a power of ten.
func niceStep(least float64) float64 {
	if least <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= least {
			return factor * power
		}
	}
	return 10 * power
}
