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

// row is one figure beside its baseline.
type row struct {
	what     string
	figure   string
	baseline string
	ratio    float64
	goal     string // empty: none
}

func (t *table) section(name string) {
	if len(t.lines) > 0 {
		t.lines = append(t.lines, "")
	}
	t.lines = append(t.lines, strings.ToUpper(name)+"\tFIGURE\tBASELINE\tRATIO\tGOAL")
}

func (t *table) add(r row) {
	t.lines = append(t.lines, fmt.Sprintf("%s\t%s\t%s\t%.2f ×\t%s", r.what, r.figure, r.baseline, r.ratio, r.goal))
}

func (t *table) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, line := range t.lines {
		fmt.Fprintln(tw, line)
	}
	return tw.Flush()
}

// goal says what was to be reached, and whether it was.
func goal(text string, reached bool) string {
	if reached {
		return text + ": reached"
	}
	return text + ": missed"
}

func micros(d time.Duration) string {
	return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }
