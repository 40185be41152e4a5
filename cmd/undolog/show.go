package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/effectjson"
	"github.com/undolog/undolog/internal/splice"
	"github.com/undolog/undolog/store"
)

// showJSON is what show --json prints.
type showJSON struct {
	*effectJSON
	Transitions []transitionJSON   `json:"transitions"`
	Events      []effectjson.Event `json:"events"`
}

type transitionJSON struct {
	Ordinal int                `json:"ordinal"`
	Attempt int                `json:"attempt"`
	State   effect.State       `json:"state"`
	At      time.Time          `json:"at"`
	Owner   string             `json:"owner,omitempty"`
	By      string             `json:"by,omitempty"`
	Reason  string             `json:"reason,omitempty"`
	Answer  *effectjson.Answer `json:"answer,omitempty"`
}

func showCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show everything about one effect",
		Long: `Show one effect whole: identity and by which rule, every attempt and event, and arguments and answers
as the bytes that went over the wire.`,
		Example: "  undolog show 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42",
		Args:    exactArgs(1, "the id of an effect"),

		ValidArgsFunction: completeIDs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withLog(cmd, func(log *store.Log) error {
				shown, err := log.Show(cmd.Context(), tenantFlag(cmd), args[0])
				if err != nil {
					return notThere(cmd, args[0], err)
				}
				if asJSON {
					return writeJSON(cmd.OutOrStdout(), showToJSON(shown, log.Now()))
				}
				return printEffect(cmd.OutOrStdout(), shown, log.Now())
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func showToJSON(shown *store.Shown, now time.Time) *showJSON {
	s := &showJSON{
		effectJSON:  toJSON(shown.Record, now),
		Transitions: make([]transitionJSON, 0, len(shown.Transitions)),
		Events:      make([]effectjson.Event, 0, len(shown.Events)),
	}
	for _, t := range shown.Transitions {
		s.Transitions = append(s.Transitions, transitionJSON{
			Ordinal: t.Ordinal, Attempt: t.Attempt, State: t.State, At: t.At, Owner: t.Owner,
			By: t.By, Reason: t.Reason, Answer: effectjson.AnswerOf(t.Answer),
		})
	}
	for i := range shown.Events {
		s.Events = append(s.Events, effectjson.EventOf(&shown.Events[i]))
	}
	return s
}

func printEffect(w io.Writer, shown *store.Shown, now time.Time) error {
	r, p := shown.Record, paletteFor(w)
	fmt.Fprintf(w, "%s  %s\n\n", p.bold("effect "+r.ID), p.state(r.StateAt(now)))
	rows := [][]string{
		{"tool", printable(r.Server) + " / " + printable(r.Tool)},
		{"tier", string(r.Tier) + " (from " + printable(r.Source) + ")"},
		{"identity", identityLine(r)},
		{"who", printable(r.Principal)},
		{"run", printable(r.Run)},
		{"key", printable(r.Key)},
		{"occurrence", printable(r.Occurrence)},
		{"session", printable(r.Session)},
		{"trace", printable(r.Trace)},
		{"tenant", printable(r.Tenant)},
		{"policy", r.Policy},
		{"generation", fmt.Sprintf("%d, attempt %d", r.Generation, r.Attempt)},
		{"look-alike of", r.LookalikeOf},
		{"delivered", yesNo(r.Delivered)},
		{"note", claimNote(r, now)},
	}
	if err := table(w, nonEmpty(rows)); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s\n%s\n", p.bold("arguments"), printable(argumentsOf(r)))
	if a := r.Approval; a != nil {
		if err := printApproval(w, p, r, now); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\n%s\n", p.bold("history"))
	if err := printHistory(w, p, shown.Transitions, shown.Events); err != nil {
		return err
	}
	if r.Answer.Kind != effect.AnswerNone {
		fmt.Fprintf(w, "\n%s\n%s\n", p.bold(string(r.Answer.Kind)), printable(bodyOf(&r.Answer)))
	}
	return nil
}

// pruned stands where bytes were that are no longer kept.
const pruned = "(pruned)"

// argumentsOf are the arguments of a call. What was recorded is an object at the least, so that none are pruned.
func argumentsOf(r *effect.Record) string {
	if len(r.Arguments) == 0 {
		return pruned
	}
	return string(r.Arguments)
}

func bodyOf(a *effect.Answer) string {
	if a.Pruned {
		return pruned
	}
	return string(a.Body)
}

// printApproval says what was asked, who has decided what, and with which arguments the call is made.
func printApproval(w io.Writer, p palette, r *effect.Record, now time.Time) error {
	a := r.Approval
	fmt.Fprintf(w, "\n%s\n", p.bold("approval"))
	rows := [][]string{
		{"request", a.ID + ", " + requestWord(r, now)},
		{"why", printable(a.Why)},
		{"decide until", localTime(a.DecideUntil)},
		{"approvers", printable(strings.Join(a.Approvers, ", "))},
		{"digest", a.Complete.String()},
	}
	if r.StateAt(now) == effect.StateAwaitingApproval {
		rows = append(rows, []string{"left", timeLeft(a, now)})
	}
	for _, v := range a.Votes {
		rows = append(rows, []string{"approved", "by " + printable(v.By) + " at " + localTime(v.At) + reasonOf(v.Reason)})
	}
	if err := table(w, nonEmpty(rows)); err != nil {
		return err
	}
	if a.Arguments != nil {
		heading := "arguments as they were asked about, which are sent"
		if a.IsEdited() {
			heading = "arguments as edited, which are sent"
		}
		fmt.Fprintf(w, "\n%s\n%s\n", p.bold(heading), printable(string(a.Arguments)))
	}
	return nil
}

// requestWord says how a request stands, or how it ended.
func requestWord(r *effect.Record, now time.Time) string {
	switch state := r.StateAt(now); {
	case state == effect.StateAwaitingApproval:
		return approvalWord(r.Approval)
	case state == effect.StateDenied, state == effect.StateExpired, state == effect.StateVoid:
		return string(state)
	case r.Approval.IsApproved():
		return "approved, used"
	}
	return "not needed any more"
}

func reasonOf(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + printable(reason)
}

func identityLine(r *effect.Record) string {
	switch {
	case r.Tier == effect.TierRead:
		return "none: a read is never matched"
	case r.Rule == effect.RuleNone:
		return "none: nothing said who calls, so it is never matched"
	case r.Rule == effect.RuleWindow:
		return fmt.Sprintf("window: caller, server, tool and arguments  %s", r.Signature)
	}
	return fmt.Sprintf("%s %q  %s", r.Rule, r.Scope, r.Signature)
}

// claimNote says why a claim reads as in doubt.
func claimNote(r *effect.Record, now time.Time) string {
	if r.State != effect.StateClaimed || r.StateAt(now) != effect.StateInDoubt {
		return ""
	}
	if !r.TimeoutAt.IsZero() && !now.Before(r.TimeoutAt) {
		return "claimed, and no answer came in time; a late one still settles it"
	}
	return "claimed, and the process that held it is gone"
}

func printHistory(w io.Writer, p palette, ts []effect.Transition, evs []effect.Event) error {
	var rows [][]string
	for len(ts) > 0 || len(evs) > 0 {
		if len(evs) == 0 || len(ts) > 0 && !ts[0].At.After(evs[0].At) {
			t := ts[0]
			ts = ts[1:]
			rows = append(rows, []string{localTime(t.At), p.state(t.State), fmt.Sprintf("attempt %d", t.Attempt), transitionNote(&t)})
			continue
		}
		same, count := sameEvents(evs, ts)
		note := printable(string(evs[0].Detail))
		if count > 1 {
			note = fmt.Sprintf("%d times, last %s", count, localTime(evs[same-1].At))
		}
		rows = append(rows, []string{localTime(evs[0].At), p.paint("39", evs[0].Kind), "", note})
		evs = evs[same:]
	}
	return table(w, rows)
}

// sameEvents is how many events at the beginning of evs tell the same, with no move of the effect in between, and how
// often that has happened: an effect may have been replayed many thousand times.
func sameEvents(evs []effect.Event, ts []effect.Transition) (same, count int) {
	if !tellsNumberOnly(&evs[0]) {
		return 1, 1
	}
	for same < len(evs) && evs[same].Kind == evs[0].Kind && tellsNumberOnly(&evs[same]) && (len(ts) == 0 || ts[0].At.After(evs[same].At)) {
		count += times(&evs[same])
		same++
	}
	return same, count
}

// tellsNumberOnly reports whether an event has nothing to say but how many more there were.
func tellsNumberOnly(ev *effect.Event) bool {
	number := true
	if len(ev.Detail) > 0 {
		err := splice.Each(ev.Detail, func(name string, _ []byte) { number = number && name == "more" })
		number = number && err == nil
	}
	return number
}

func transitionNote(t *effect.Transition) string {
	var notes []string
	if word := decisionWord(t); word != "" {
		notes = append(notes, word)
	}
	if t.By != "" {
		notes = append(notes, "by "+printable(t.By))
	}
	if t.Reason != "" {
		notes = append(notes, printable(t.Reason))
	}
	if t.Answer.IsError {
		notes = append(notes, "isError")
	}
	switch {
	case t.Answer.Pruned:
		notes = append(notes, string(t.Answer.Kind)+" "+pruned)
	case t.Answer.Kind != effect.AnswerNone:
		notes = append(notes, fmt.Sprintf("%s of %d bytes", t.Answer.Kind, len(t.Answer.Body)))
	}
	return strings.Join(notes, ", ")
}

// decisionWord names the decision that made a move; empty where none did.
func decisionWord(t *effect.Transition) string {
	if t.Approval == nil || t.Approval.Last == nil || t.By == "" || t.Approval.Last.By != t.By {
		return ""
	}
	return string(t.Approval.Last.Kind)
}

func nonEmpty(rows [][]string) [][]string {
	var kept [][]string
	for _, row := range rows {
		if row[1] != "" {
			kept = append(kept, row)
		}
	}
	return kept
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "not that we know"
}
