package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/splice"
	"github.com/undolog/undolog/store"
)

func pendingCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "pending",
		Short: "List what waits for somebody",
		Long: `List the effects that wait for somebody, with what to do for each: those that wait for approval ("undolog
approve", "undolog deny"), those in doubt, whose outcome a person or a probe must settle ("undolog resolve"), and
those whose tool waits for another round or works on a task, which the gateway follows.`,
		Example: "  undolog pending",
		Args:    exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withLog(cmd, func(log *store.Log) error {
				list, err := log.Pending(cmd.Context(), tenantFlag(cmd), 1000)
				if err != nil {
					return err
				}
				switch {
				case asJSON:
					return newLogPrinter(cmd.OutOrStdout(), true, log.Now).print(list)
				case len(list) == 0:
					fmt.Fprintln(cmd.OutOrStdout(), "nothing is pending")
				}
				return printPending(cmd.OutOrStdout(), list, log.Now())
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

func printPending(w io.Writer, list []*effect.Record, now time.Time) error {
	p := paletteFor(w)
	table := &columns{
		out:   w,
		heads: []string{"BEGUN", "STATE", "SERVER", "TOOL", "WHO", "ARGUMENTS", "ID", "NEXT"},
		spare: []string{"WHO", "SERVER", "ARGUMENTS", "BEGUN"},
		clip:  "ARGUMENTS",
		width: terminalWidth(w),
		paint: func(head, cell string) string {
			if head == "STATE" {
				return p.state(effect.State(cell))
			}
			return cell
		},
	}
	var rows [][]string
	for _, r := range list {
		rows = append(rows, []string{
			localTime(r.CreatedAt), string(r.StateAt(now)), clip(r.Server, 36), clip(r.Tool, 24), clip(who(r), 24),
			clip(string(r.Arguments), 40), r.ID, next(r, now),
		})
	}
	return table.print(rows)
}

// next is what somebody does for an effect that waits.
func next(r *effect.Record, now time.Time) string {
	switch r.StateAt(now) {
	case effect.StateAwaitingApproval:
		if a := r.Approval; a.IsApproved() {
			return "approved: its agent sends the call again, until " + localTime(a.UseUntil)
		}
		return "undolog approve or deny, until " + localTime(r.Approval.DecideUntil)
	case effect.StateInDoubt:
		return "look at the target, then undolog resolve"
	case effect.StateWaiting:
		if isTaskHandle(r.Answer.Body) {
			return "its task is followed by the gateway"
		}
		return "its agent answers what the tool asks"
	}
	return ""
}

// isTaskHandle reports whether an answer is that of a task that has begun.
func isTaskHandle(answer []byte) bool {
	return splice.Get(answer, "taskId") != nil || splice.Get(answer, "task", "taskId") != nil
}
