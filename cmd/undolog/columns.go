package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// columns prints rows under one heading, aligned over all calls of print: log --follow adds rows as they
// come. On a terminal that is too narrow it leaves columns out, the least telling first.
type columns struct {
	out   io.Writer
	heads []string
	spare []string // what is left out where the terminal is too narrow, in this order
	clip  string   // the column that is shortened before anything is left out
	width int      // of the terminal; 0 is no limit
	paint func(head, cell string) string

	widths []int // so far; 0 is a column that is left out
}

// clipTo is how far the clipped column is shortened before another one is left out.
const clipTo = 16

// gap stands between two columns.
const gap = "  "

func (c *columns) print(rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	if c.widths == nil {
		rows = append([][]string{c.heads}, rows...)
		c.widths = make([]int, len(c.heads))
		c.grow(rows, func(int) bool { return true })
		c.fit()
	} else {
		c.grow(rows, func(i int) bool { return c.widths[i] > 0 && (c.width == 0 || c.heads[i] != c.clip) })
	}
	for _, row := range rows {
		if _, err := fmt.Fprintln(c.out, c.line(row)); err != nil {
			return err
		}
	}
	return nil
}

func (c *columns) grow(rows [][]string, may func(column int) bool) {
	for _, row := range rows {
		for i, cell := range row {
			if may(i) {
				c.widths[i] = max(c.widths[i], utf8.RuneCountInString(cell))
			}
		}
	}
}

// fit shortens and leaves out columns until a line has room.
func (c *columns) fit() {
	clipped := slices.Index(c.heads, c.clip)
	for _, spare := range c.spare {
		over := c.total() - c.width
		if c.width <= 0 || over <= 0 {
			return
		}
		if w := c.widths[clipped]; w-over >= clipTo {
			c.widths[clipped] = w - over
			return
		}
		c.widths[slices.Index(c.heads, spare)] = 0
	}
}

func (c *columns) total() int {
	total := -len(gap)
	for _, w := range c.widths {
		if w > 0 {
			total += w + len(gap)
		}
	}
	return total
}

func (c *columns) line(row []string) string {
	var cells []string
	for i, cell := range row {
		w := c.widths[i]
		if w == 0 {
			continue
		}
		if c.heads[i] == c.clip {
			cell = clip(cell, w)
		}
		padding := strings.Repeat(" ", max(0, w-utf8.RuneCountInString(cell)))
		cells = append(cells, c.paint(c.heads[i], cell)+padding)
	}
	return strings.TrimRight(strings.Join(cells, gap), " ")
}

// terminalWidth is how many characters a line of w has; 0 where w is no terminal.
func terminalWidth(w io.Writer) int {
	fd, ok := terminal(w)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(fd)
	if err != nil {
		return 0
	}
	return width
}
