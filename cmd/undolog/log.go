package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
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

States: claimed (under way), waiting (the tool asked for another round or gave a task), committed,
failed (answered: not applied), released (never sent), in_doubt (sent, and no answer known).`,
		Example: `  undolog log --since 24h --state in_doubt
  undolog log --tool 'refund*' --json | jq .arguments
  undolog log --follow`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return runLog(cmd, &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.run, "run", "", "only effects of this run")
	flags.StringVar(&f.server, "server", "", "only effects of this server")
	flags.StringVar(&f.tool, "tool", "", "only effects of tools that match this glob")
	flags.StringSliceVar(&f.states, "state", nil, "only effects in these states")
	flags.StringVar(&f.since, "since", "", "only effects since then: a duration (90m, 24h, 7d) or a time (2026-11-30, RFC 3339)")
	flags.IntVarP(&f.limit, "limit", "n", 50, "how many at the most")
	flags.BoolVar(&f.json, "json", false, "one JSON object a line")
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on with what happens from now on, oldest first, until interrupted")
	return cmd
}

func runLog(cmd *cobra.Command, f *logFlags) error {
	filter, err := f.filter(tenantFlag(cmd), time.Now())
	if err != nil {
		return err
	}
	return withLog(cmd, func(log *store.Log) error {
		list, err := log.List(cmd.Context(), filter)
		if err != nil {
			return err
		}
		p := &logPrinter{out: cmd.OutOrStdout(), json: f.json, palette: paletteFor(cmd.OutOrStdout())}
		if f.follow {
			return follow(cmd.Context(), log, filter, list, p)
		}
		if len(list) == 0 && !f.json {
			return noEffects(cmd)
		}
		return p.print(list)
	})
}

// noEffects also says in which log, since that is the usual reason.
func noEffects(cmd *cobra.Command) error {
	path, err := dbPath(cmd)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "no effects in %s match\n", path)
	return nil
}

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
	var err error
	if filter.Since, err = parseSince(f.since, now); err != nil {
		return nil, err
	}
	return filter, nil
}

func parseState(s string) (effect.State, error) {
	var known []string
	seen := map[effect.State]bool{}
	for _, m := range effect.Moves() {
		for _, state := range []effect.State{m.From, m.To} {
			if string(state) == s {
				return state, nil
			}
			if !seen[state] {
				seen[state] = true
				known = append(known, string(state))
			}
		}
	}
	return "", usagef("--state %s: want one of %s", s, strings.Join(known, ", "))
}

func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
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
	out     io.Writer
	json    bool
	palette palette
	headed  bool
}

func (p *logPrinter) print(list []*effect.Record) error {
	now := time.Now()
	if p.json {
		for _, r := range list {
			if err := writeJSON(p.out, toJSON(r, now)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		return nil
	}
	var rows [][]string
	if !p.headed {
		p.headed = true
		rows = append(rows, []string{"BEGUN", p.palette.paint("39", "STATE"), "TIER", "SERVER", "TOOL", "BY", "WHO", "ARGUMENTS", "ID"})
	}
	for _, r := range list {
		rows = append(rows, []string{
			localTime(r.CreatedAt), p.palette.state(r.StateAt(now)), string(r.Tier), clip(r.Server, 24), clip(r.Tool, 24),
			string(r.Rule), clip(who(r), 24), clip(string(r.Arguments), 40), r.ID,
		})
	}
	return table(p.out, rows)
}

// who is the run where there is one, else who called.
func who(r *effect.Record) string {
	if r.Run != "" {
		return "run " + r.Run
	}
	return r.Principal
}
