package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func printColumns(t *testing.T, width int, batches ...[][]string) string {
	t.Helper()
	var out bytes.Buffer
	c := &columns{
		out: &out, width: width, heads: []string{"AT", "WHO", "WHAT", "ID"}, spare: []string{"WHO", "WHAT"}, clip: "WHAT",
		paint: func(_, cell string) string { return cell },
	}
	for _, rows := range batches {
		if err := c.print(rows); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func TestColumns_stayAlignedOverBatches(t *testing.T) {
	got := printColumns(t, 0, [][]string{{"12:00", "ada", "a", "1"}}, nil, [][]string{{"1", "é", "", "2"}})
	want := "AT     WHO  WHAT  ID\n12:00  ada  a     1\n1      é          2\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestColumns_fitTheTerminal(t *testing.T) {
	row := []string{"12:00", "somebody", strings.Repeat("x", 40), strings.Repeat("i", 10)}
	for _, c := range []struct {
		width int
		heads string
	}{
		{100, "AT WHO WHAT ID"},
		{50, "AT WHO WHAT ID"}, // WHAT is shortened
		{36, "AT WHAT ID"},
		{30, "AT ID"},
		{3, "AT ID"}, // nothing is left that can be spared
	} {
		out := printColumns(t, c.width, [][]string{row})
		heads, line, _ := strings.Cut(out, "\n")
		if got := strings.Join(strings.Fields(heads), " "); got != c.heads {
			t.Errorf("width %d: columns %s, want %s", c.width, got, c.heads)
		}
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > max(c.width, 17) {
			t.Errorf("width %d: a line of %d characters", c.width, n)
		}
	}
}
