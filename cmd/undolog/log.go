package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/timespan"
	"github.com/undolog/undolog/store"
)

type logFlags struct {
	run, server, tool, since string
	states                   []string
	limit                    int
	json, follow             bool
}

func logCommand() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "log",
		Short: "List effects, newest first",
		Long: `List effects, newest first: what was called, by whom, and where it stands.

States: awaiting_approval (not sent until a person approves), denied, expired (nobody decided in time), void
(approved, and not used in time or no longer allowed), claimed (under way), waiting (the tool asked for another
round or gave a task), committed, failed (answered: not applied), released (never sent), in_doubt (sent, and no
answer known). Calls that the policy denies or a limit refuses are no effects: "undolog events" lists them.
The answer is a result, a result that says isError, or a JSON-RPC error. A narrow terminal gets fewer columns.
Times are of your own time zone; with --json they are UTC.`,
		Example: `  undolog log --since 24h --state in_doubt
  undolog log --tool 'refund*' --json | jq .arguments
  undolog log --follow`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return runLog(cmd, &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.run, "run", "", "only effects of this run")
	flags.StringVar(&f.server, "server", "", "only effects of this server, by its whole name")
	flags.StringVar(&f.tool, "tool", "", "only effects of tools that match this glob")
	flags.StringSliceVar(&f.states, "state", nil, "only effects in these states")
	flags.StringVar(&f.since, "since", "", "only effects since then: a duration (90m, 24h, 7d) or a time (2026-11-30, RFC 3339)")
	flags.IntVarP(&f.limit, "limit", "n", 50, "how many at the most")
	flags.BoolVar(&f.json, "json", false, "one JSON object a line")
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on with what happens from now on, oldest first, until interrupted")
	completeWords(cmd, "state", stateNames()...)
	return cmd
}

func runLog(cmd *cobra.Command, f *logFlags) error {
	filter, err := f.filter(tenantFlag(cmd), time.Now())
	if err != nil {
		return err
	}
	with := withLog
	if f.follow {
		with = withAnyLog
	}
	return with(cmd, func(log *store.Log) error {
		p := newLogPrinter(cmd.OutOrStdout(), f.json, log.Now)
		if f.follow {
			return follow(cmd.Context(), log, filter, p)
		}
		list, err := newest(cmd.Context(), log, filter)
		if err != nil {
			return err
		}
		if len(list) == 0 && !f.json {
			return noEffects(cmd)
		}
		return p.print(list)
	})
}

// newest lists effects, the one that was begun last first.
func newest(ctx context.Context, log *store.Log, filter *store.Filter) ([]*effect.Record, error) {
	list, err := log.List(ctx, filter)
	slices.SortStableFunc(list, laterFirst)
	return list, err
}

// noEffects also says in which log, since that is the usual reason.
func noEffects(cmd *cobra.Command) error {
	place, err := logPlace(cmd)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "no effects of tenant %s in %s match\n", tenantFlag(cmd), place)
	return nil
}

// laterFirst orders by when a call was begun. The log's own order is that of writing, which for reads is
// a moment later.
func laterFirst(a, b *effect.Record) int { return b.CreatedAt.Compare(a.CreatedAt) }

func (f *logFlags) filter(tenant string, now time.Time) (*store.Filter, error) {
	filter := &store.Filter{Tenant: tenant, Run: f.run, Server: f.server, Tool: f.tool, Limit: f.limit}
	if f.limit < 1 {
		return nil, usagef("--limit %d: want at least 1", f.limit)
	}
	for _, s := range f.states {
		state, err := parseState(s)
		if err != nil {
			return nil, err
		}
		filter.States = append(filter.States, state)
	}
	filter.Brief = !f.json
	var err error
	if filter.Since, err = parseSince(f.since, now); err != nil {
		return nil, err
	}
	return filter, nil
}

func parseState(s string) (effect.State, error) {
	known := stateNames()
	if !slices.Contains(known, s) {
		return "", usagef("--state %s: want one of %s", s, strings.Join(known, ", "))
	}
	return effect.State(s), nil
}

func stateNames() []string {
	var names []string
	for _, state := range effect.Reachable() {
		names = append(names, string(state))
	}
	return names
}

func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := timespan.Parse(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("--since %s: want a duration such as 90m, 24h or 7d, or a time such as 2026-11-30", s)
}

// logPrinter prints lists of effects; the heading once.
type logPrinter struct {
	out   io.Writer
	json  bool
	now   func() time.Time // the log's clock
	table *columns
}

func newLogPrinter(out io.Writer, asJSON bool, now func() time.Time) *logPrinter {
	p := paletteFor(out)
	return &logPrinter{out: out, json: asJSON, now: now, table: &columns{
		out:   out,
		heads: []string{"BEGUN", "STATE", "ANSWER", "TIER", "SERVER", "TOOL", "IDENTITY", "WHO", "ARGUMENTS", "ID"},
		spare: []string{"IDENTITY", "TIER", "WHO", "SERVER", "ARGUMENTS", "ANSWER", "BEGUN"},
		clip:  "ARGUMENTS",
		width: terminalWidth(out),
		paint: func(head, cell string) string {
			if head == "STATE" {
				return p.state(effect.State(cell))
			}
			return cell
		},
	}}
}

func (p *logPrinter) print(list []*effect.Record) error {
	now := p.now()
	var rows [][]string
	for _, r := range list {
		if p.json {
			if err := writeJSON(p.out, toJSON(r, now)); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{
			localTime(r.CreatedAt), string(r.StateAt(now)), answerWord(&r.Answer), string(r.Tier), clip(r.Server, 36), clip(r.Tool, 24),
			string(r.Rule), clip(who(r), 24), clip(argumentsOf(r), 40), r.ID,
		})
	}
	return p.table.print(rows)
}

// answerWord tells a result from an answered error: the state does not.
func answerWord(a *effect.Answer) string {
	switch {
	case a.IsError:
		return "isError"
	case a.Kind == effect.AnswerNone:
		return ""
	}
	return string(a.Kind)
}

// who is the run where there is one, else who called.
func who(r *effect.Record) string {
	if r.Run != "" {
		return "run " + r.Run
	}
	return r.Principal
}
