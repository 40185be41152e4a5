package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

func approvalsCommand() *cobra.Command {
	var f waitingFlags
	var digests bool
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "List the calls that wait for a person's approval",
		Long: `List the calls that wait for a person's approval, newest first. Decide with "undolog approve", "undolog
deny" or "undolog edit"; "undolog show ID" shows a call whole. A call that nobody approves in time is not
made.`,
		Example: `  undolog approvals
  undolog approvals --all-tenants --tool 'refund*'
  undolog approvals --digests > calls.txt   # look at them, take lines away, then
  undolog approve $(cat calls.txt)`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			if digests && f.everyTenant {
				return usagef("--digests is for \"undolog approve\", which decides for one tenant: name it with --tenant, without --all-tenants")
			}
			return withLog(cmd, func(log *store.Log) error {
				list, err := f.list(cmd, log, store.Filter.Awaiting)
				if err != nil {
					return err
				}
				if len(list) == 0 && !f.json && !digests {
					fmt.Fprintf(cmd.OutOrStdout(), "nothing of %s waits for approval\n", f.whose(cmd))
					return nil
				}
				return f.printApprovals(cmd.OutOrStdout(), list, log.Now(), digests)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&digests, "digests", false, "one ID=DIGEST a line, as \"undolog approve\" and \"undolog deny\" take them")
	return cmd
}

func (f *waitingFlags) printApprovals(w io.Writer, list []*effect.Record, now time.Time, digests bool) error {
	var rows [][]string
	for _, r := range list {
		a := r.Approval
		switch {
		case f.json:
			if err := writeJSON(w, toJSON(r, now)); err != nil {
				return err
			}
		case digests && !a.IsApproved():
			fmt.Fprintf(w, "%s=%s\n", r.ID, a.Complete)
		case !digests:
			rows = append(rows, f.withTenant([]string{
				localTime(a.RequestedAt), approvalWord(a), timeLeft(a, now), clip(r.Server, 36), clip(r.Tool, 24), clip(who(r), 24),
				clip(string(r.Executed()), 60), r.ID,
			}, clip(r.Tenant, 36)))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return f.approvalColumns(w).print(rows)
}

func (f *waitingFlags) approvalColumns(w io.Writer) *columns {
	return &columns{
		out:   w,
		heads: f.withTenant([]string{"ASKED", "STATE", "LEFT", "SERVER", "TOOL", "WHO", "ARGUMENTS", "ID"}, "TENANT"),
		spare: []string{"WHO", "SERVER", "ASKED", "ARGUMENTS"},
		clip:  "ARGUMENTS",
		width: terminalWidth(w),
		paint: func(_, cell string) string { return cell },
	}
}

// approvalWord says how far people are with a request.
func approvalWord(a *effect.Approval) string {
	switch {
	case a.IsApproved():
		return "approved, not used"
	case a.IsEdited():
		return fmt.Sprintf("edited, %d of %d", len(a.Votes), a.Quorum)
	case a.Quorum > 1:
		return fmt.Sprintf("%d of %d", len(a.Votes), a.Quorum)
	}
	return "undecided"
}

// timeLeft is how long the request can still be decided, or its approval used.
func timeLeft(a *effect.Approval, now time.Time) string {
	until := a.DecideUntil
	if a.IsApproved() {
		until = a.UseUntil
	}
	left := until.Sub(now)
	switch {
	case left >= 48*time.Hour:
		return fmt.Sprintf("%dd", left/(24*time.Hour))
	case left >= time.Hour:
		return strings.TrimSuffix(left.Truncate(time.Minute).String(), "0s")
	}
	return left.Truncate(time.Second).String()
}
