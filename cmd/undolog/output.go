package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/undolog/undolog/effect"
)

// effectJSON is an effect as --json prints it: one object a line.
type effectJSON struct {
	ID          string          `json:"id"` // UUIDv7
	Seq         int64           `json:"seq"`
	At          time.Time       `json:"at"`
	ChangedAt   time.Time       `json:"changedAt"`
	State       effect.State    `json:"state"`
	Tenant      string          `json:"tenant"`
	Principal   string          `json:"principal,omitempty"`
	Session     string          `json:"session,omitempty"`
	Trace       string          `json:"trace,omitempty"`
	Server      string          `json:"server"`
	Tool        string          `json:"tool"`
	Tier        effect.Tier     `json:"tier"`
	Identity    effect.Rule     `json:"identity"`
	Scope       string          `json:"scope,omitempty"`
	Signature   string          `json:"signature,omitempty"`
	Generation  int             `json:"generation,omitempty"`
	Attempt     int             `json:"attempt"`
	Key         string          `json:"key,omitempty"`
	Run         string          `json:"run,omitempty"`
	Occurrence  string          `json:"occurrence,omitempty"`
	LookalikeOf string          `json:"lookalikeOf,omitempty"`
	Contract    string          `json:"contract,omitempty"` // where the tier and the rest came from
	Policy      string          `json:"policy,omitempty"`   // digest
	By          string          `json:"by,omitempty"`
	Reason      string          `json:"reason,omitempty"`
	Delivered   bool            `json:"delivered"`
	Arguments   json.RawMessage `json:"arguments,omitempty"`
	Approval    *requestJSON    `json:"approval,omitempty"`
	Executed    json.RawMessage `json:"executed,omitempty"` // the arguments that a person changed them to
	Answer      *answerJSON     `json:"answer,omitempty"`
}

type answerJSON struct {
	Kind    effect.AnswerKind `json:"kind"` // result or error
	IsError bool              `json:"isError,omitempty"`
	Body    json.RawMessage   `json:"body"`
}

func toJSON(r *effect.Record, now time.Time) *effectJSON {
	e := &effectJSON{
		ID: r.ID, Seq: r.Seq, At: r.CreatedAt, ChangedAt: r.ChangedAt, State: r.StateAt(now),
		Tenant: r.Tenant, Principal: r.Principal, Session: r.Session, Trace: r.Trace,
		Server: r.Server, Tool: r.Tool, Tier: r.Tier,
		Identity: r.Rule, Scope: r.Scope, Generation: r.Generation, Attempt: r.Attempt,
		Key: r.Key, Run: r.Run, Occurrence: r.Occurrence, LookalikeOf: r.LookalikeOf,
		Contract: r.Source, Policy: r.Policy, By: r.By, Reason: r.Reason, Delivered: r.Delivered,
		Arguments: r.Arguments, Approval: requestToJSON(r.Approval), Answer: answerToJSON(r.Answer),
	}
	if r.Approval != nil {
		e.Executed = r.Approval.Arguments
	}
	if !r.Signature.IsZero() {
		e.Signature = r.Signature.String()
	}
	return e
}

func answerToJSON(a effect.Answer) *answerJSON {
	if a.Kind == effect.AnswerNone {
		return nil
	}
	return &answerJSON{Kind: a.Kind, IsError: a.IsError, Body: a.Body}
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
	f, ok := w.(*os.File)
	return palette(ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
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
