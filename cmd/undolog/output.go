package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/effectjson"
)

// effectJSON is an effect as --json prints it, one object a line: with what its caller alone may know, since who
// can read the log knows that anyway.
type effectJSON struct {
	effectjson.Effect
	Scope       string `json:"scope,omitempty"`
	Signature   string `json:"signature,omitempty"`
	Key         string `json:"key,omitempty"`
	Occurrence  string `json:"occurrence,omitempty"`
	LookalikeOf string `json:"lookalikeOf,omitempty"`
	Policy      string `json:"policy,omitempty"` // digest
}

func toJSON(r *effect.Record, now time.Time) *effectJSON {
	e := &effectJSON{
		Effect: effectjson.Of(r, now), Scope: r.Scope, Key: r.Key, Occurrence: r.Occurrence, LookalikeOf: r.LookalikeOf, Policy: r.Policy,
	}
	if !r.Signature.IsZero() {
		e.Signature = r.Signature.String()
	}
	return e
}

// printer is the output of a command. It remembers what could not be written, whoever wrote it: a script must not take
// a list that was cut short for a whole one.
type printer struct {
	w io.Writer

	mu  sync.Mutex
	err error
}

func (p *printer) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.err == nil {
			p.err = err
		}
	}
	return n, err
}

// failed returns what kept something from being written, of a command that went well otherwise.
func (p *printer) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("it is done, but what it says could not be written: %w", p.err)
}

// terminal is the terminal that w is.
func terminal(w io.Writer) (fd int, ok bool) {
	if p, wrapped := w.(*printer); wrapped {
		w = p.w
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	return int(f.Fd()), true
}

// writeJSON prints v as one line; text stays readable (no HTML escapes).
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// palette colours words on a terminal and leaves them alone elsewhere.
type palette bool

func paletteFor(w io.Writer) palette {
	_, ok := terminal(w)
	return palette(ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

func (p palette) paint(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p palette) state(s effect.State) string {
	switch s {
	case effect.StateCommitted, effect.StateCompensated:
		return p.paint("32", string(s))
	case effect.StateInDoubt, effect.StateCompensationFailed:
		return p.paint("31", string(s))
	case effect.StateClaimed, effect.StateWaiting, effect.StateAwaitingApproval:
		return p.paint("33", string(s))
	}
	return p.paint("90", string(s))
}

func (p palette) bold(s string) string { return p.paint("1", s) }

// table prints aligned columns. Cells of one column must all be coloured or none.
func table(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

func localTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// clip shortens a text from outside to one printable line of at most n characters.
func clip(s string, n int) string {
	s = printable(s)
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// printable keeps control characters of tools and agents off the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x202e || r == 0x2066 || r == 0x2067 {
			return '·'
		}
		return r
	}, s)
}
