package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// screen is where the demo tells what happens. It colours on a terminal only.
type screen struct {
	out    *os.File
	colour bool
}

func newScreen(out *os.File) screen {
	plain := os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"
	return screen{out: out, colour: !plain && term.IsTerminal(int(out.Fd()))}
}

func (s screen) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s screen) heading(n int, title string) {
	fmt.Fprintf(s.out, "\n%s\n", s.paint("1", fmt.Sprintf("%d. %s", n, title)))
}

func (s screen) say(text string) { fmt.Fprintln(s.out, text) }

// note says what happens in the world, between messages.
func (s screen) note(text string) { fmt.Fprintln(s.out, "   "+text) }

func (s screen) sent(id int, arguments string) {
	fmt.Fprintf(s.out, "   %s tools/call  id %d  charge %s\n", s.paint("36", "→"), id, arguments)
}

// got shows an answer: what the model reads, and the members by which a program tells what it is.
func (s screen) got(m message) {
	kind, text, mark := "result", resultText(m.Result), metaOf(m.Result)
	if m.Error != nil {
		kind, text, mark = "error", m.Error.Message, outcomeOf(m.Error.Data)
	}
	fmt.Fprintf(s.out, "   %s %s  id %s  %s\n", s.paint("36", "←"), kind, m.ID, wrap(text))
	if mark != "" {
		fmt.Fprintf(s.out, "     %s\n", s.paint("33", mark))
	}
}

func (s screen) counted(account string, n int) {
	times := "once"
	if n != 1 {
		times = fmt.Sprintf("%d times", n)
	}
	fmt.Fprintf(s.out, "   %s the ledger: %s was charged %s\n", s.paint("32", "✓"), account, times)
}

func (s screen) command(args []string) {
	shown := make([]string, len(args))
	for i, a := range args {
		if shown[i] = a; strings.Contains(a, " ") {
			shown[i] = `"` + a + `"`
		}
	}
	fmt.Fprintf(s.out, "   %s undolog %s\n", s.paint("36", "$"), strings.Join(shown, " "))
}

func resultText(result json.RawMessage) string {
	var r struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if json.Unmarshal(result, &r) != nil {
		return string(result)
	}
	var all []string
	for _, c := range r.Content {
		all = append(all, c.Text)
	}
	return strings.Join(all, "\n")
}

// metaOf spells the _meta of a result, nothing when it has none.
func metaOf(result json.RawMessage) string {
	var r struct {
		Meta json.RawMessage `json:"_meta"`
	}
	if json.Unmarshal(result, &r) != nil || r.Meta == nil {
		return ""
	}
	return `"_meta": ` + string(r.Meta)
}

// outcomeOf spells the members of an error's data by which a program branches.
func outcomeOf(data json.RawMessage) string {
	var d struct {
		Effect struct {
			Outcome string `json:"outcome"`
			ID      string `json:"effectId"`
		} `json:"dev.undolog/effect"`
	}
	if json.Unmarshal(data, &d) != nil {
		return ""
	}
	return fmt.Sprintf(`"data": {"dev.undolog/effect":{"outcome":%q,"effectId":%q,…}}`, d.Effect.Outcome, d.Effect.ID)
}

// wrap breaks a long text into lines that stand below each other.
func wrap(text string) string {
	const width = 100
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		if column > 0 && column+len(word) > width {
			b.WriteString("\n     ")
			column = 0
		} else if column > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
		column += len(word) + 1
	}
	return b.String()
}
