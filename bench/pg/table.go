package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// table is what a run prints.
type table struct{ lines []string }

func (t *table) section(cells ...string) {
	if len(t.lines) > 0 {
		t.lines = append(t.lines, "")
	}
	t.row(cells...)
}

func (t *table) row(cells ...string) { t.lines = append(t.lines, strings.Join(cells, "\t")+"\t") }

func (t *table) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range t.lines {
		fmt.Fprintln(tw, line)
	}
	return tw.Flush()
}

// judge says whether a goal was reached.
func (t *table) judge(what string, ratio, atLeast float64) {
	t.goal(what, "≥", atLeast, ratio, ratio >= atLeast)
}

func (t *table) judgeAtMost(what string, ratio, atMost float64) {
	t.goal(what, "≤", atMost, ratio, ratio <= atMost)
}

func (t *table) goal(what, relation string, goal, ratio float64, reached bool) {
	verdict := "missed"
	if reached {
		verdict = "reached"
	}
	t.row(fmt.Sprintf("  goal: %s %s %g ×: %.2f, %s", what, relation, goal, ratio, verdict))
}

func millis(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond))
}
