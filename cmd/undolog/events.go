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
	"github.com/undolog/undolog/internal/effectjson"
	"github.com/undolog/undolog/store"
)

type eventsFlags struct {
	kinds       []string
	since, tool string
	limit       int
	json        bool
}

func eventsCommand() *cobra.Command {
	var f eventsFlags
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List what happened beside the effects: refused calls, replays, tools that changed",
		Long: `List events, the newest last: what was noted beside the moves of effects. A call that the policy denies, that
is over a limit or in conflict with another is "refused", also where no effect was begun; "stopped" are operations
that any interceptor stopped, with its reason. Of equal ones within a minute the first is noted, and then how
many more there were.`,
		Example: `  undolog events --kind refused,stopped --since 24h
  undolog events --tool refund --json`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return runEvents(cmd, &f) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.kinds, "kind", nil, "only of these kinds: "+strings.Join(eventKinds, ", "))
	flags.StringVar(&f.since, "since", "", "only since then: a duration (24h, 7d) or a time")
	flags.StringVar(&f.tool, "tool", "", "only of this tool, by its whole name")
	flags.IntVar(&f.limit, "limit", 50, "how many, the newest; 0 is all")
	flags.BoolVar(&f.json, "json", false, "one JSON object a line")
	completeWords(cmd, "kind", eventKinds...)
	return cmd
}

var eventKinds = []string{
	effect.EventRefused, effect.EventStopped, effect.EventReplayed, effect.EventDelivered, effect.EventShadow, effect.EventGranted,
	effect.EventAgain, effect.EventAgainUsed, effect.EventUnmatched, effect.EventToolChanged, effect.EventAltered, effect.EventLate,
	effect.EventOperation, effect.EventReminder, effect.EventResultSchema, effect.EventTold,
}

func runEvents(cmd *cobra.Command, f *eventsFlags) error {
	for _, kind := range f.kinds {
		if !slices.Contains(eventKinds, kind) {
			return usagef("--kind %s: want some of %s", kind, strings.Join(eventKinds, ", "))
		}
	}
	if f.limit < 0 {
		return usagef("--limit %d: cannot be negative", f.limit)
	}
	return withLog(cmd, func(log *store.Log) error {
		since, err := parseSince(f.since, log.Now())
		if err != nil {
			return err
		}
		list, err := f.read(cmd.Context(), log, tenantFlag(cmd), since)
		if err != nil {
			return err
		}
		switch {
		case f.json:
			return printEventsJSON(cmd.OutOrStdout(), list)
		case len(list) == 0:
			fmt.Fprintf(cmd.OutOrStdout(), "tenant %s has no such event\n", tenantFlag(cmd))
			return nil
		}
		return printEvents(cmd.OutOrStdout(), list)
	})
}

// read returns the newest events that are wanted, the oldest of them first.
func (f *eventsFlags) read(ctx context.Context, log *store.Log, tenant string, since time.Time) (list []effect.Event, err error) {
	err = log.EventsSince(ctx, tenant, since, func(page []effect.Event) time.Time {
		for i := range page {
			if f.wants(&page[i], since) {
				list = append(list, page[i])
			}
		}
		if f.limit == 0 || len(list) < f.limit {
			return since
		}
		list = f.newest(list)
		return list[len(list)-1].At
	})
	list = f.newest(list)
	slices.Reverse(list)
	return list, err
}

// newest sorts a list by when it happened, which is not the order in which it was written, the newest first, and leaves
// out what is over the limit.
func (f *eventsFlags) newest(list []effect.Event) []effect.Event {
	slices.SortStableFunc(list, func(a, b effect.Event) int { return b.At.Compare(a.At) })
	if f.limit > 0 && len(list) > f.limit {
		list = slices.Clone(list[:f.limit])
	}
	return list
}

func (f *eventsFlags) wants(ev *effect.Event, since time.Time) bool {
	return !ev.At.Before(since) && (len(f.kinds) == 0 || slices.Contains(f.kinds, ev.Kind)) && (f.tool == "" || f.tool == ev.Tool)
}

func printEvents(w io.Writer, list []effect.Event) error {
	table := &columns{
		out:   w,
		heads: []string{"AT", "KIND", "WHO", "SERVER", "TOOL", "DETAIL", "EFFECT"},
		spare: []string{"SERVER", "WHO", "AT", "EFFECT"},
		clip:  "DETAIL",
		width: terminalWidth(w),
		paint: func(_, cell string) string { return cell },
	}
	var rows [][]string
	for i := range list {
		ev := &list[i]
		rows = append(rows, []string{
			localTime(ev.At), ev.Kind, clip(ev.Principal, 24), clip(ev.Server, 36), clip(ev.Tool, 24), clip(string(ev.Detail), 200), ev.Effect,
		})
	}
	return table.print(rows)
}

// eventJSON is an event with whom and what it is about.
type eventJSON struct {
	effectjson.Event
	Seq       int64  `json:"seq"`
	Effect    string `json:"effect,omitempty"`
	Principal string `json:"principal,omitempty"`
	Server    string `json:"server,omitempty"`
	Tool      string `json:"tool,omitempty"`
}

func printEventsJSON(w io.Writer, list []effect.Event) error {
	for i := range list {
		ev := &list[i]
		j := eventJSON{Event: effectjson.EventOf(ev), Seq: ev.Seq, Effect: ev.Effect, Principal: ev.Principal, Server: ev.Server, Tool: ev.Tool}
		if err := writeJSON(w, j); err != nil {
			return err
		}
	}
	return nil
}
