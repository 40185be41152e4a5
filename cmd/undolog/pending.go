package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/internal/splice"
	"github.com/undolog/undolog/store"
)

func pendingCommand() *cobra.Command {
	var f waitingFlags
	var policyFile string
	cmd := &cobra.Command{
		Use:   "pending",
		Short: "List what waits for somebody",
		Long: `List the effects that wait for somebody, with what to do for each: those that wait for approval ("undolog
approve", "undolog deny"), those in doubt, whose outcome a person or a probe must settle ("undolog resolve"), and
those whose tool waits for another round or works on a task, which the gateway follows. With --policy, those in
doubt are named that "undolog resolve --probe" can look up.`,
		Example: `  undolog pending
  undolog pending --all-tenants --server payments
  undolog pending --policy undolog.yaml`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			policy, err := loadPolicy(policyFile)
			if err != nil {
				return err
			}
			return withLog(cmd, func(log *store.Log) error {
				list, err := f.list(cmd, log, store.Filter.Waiting)
				if err != nil {
					return err
				}
				switch {
				case f.json:
					return newLogPrinter(cmd.OutOrStdout(), true, log.Now).print(list)
				case len(list) == 0:
					fmt.Fprintf(cmd.OutOrStdout(), "nothing of %s is pending\n", f.whose(cmd))
				}
				w := &waits{flags: &f, now: log.Now(), probed: probedBy(cmd, log, policy)}
				return w.print(cmd.OutOrStdout(), list)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&policyFile, "policy", "", "policy file: says which lost outcomes a probe can look up")
	return cmd
}

// probedBy returns the server that the policy's probe for an effect asks; empty where there is none.
func probedBy(cmd *cobra.Command, log *store.Log, policy *effect.Policy) func(*effect.Record) string {
	if policy == nil {
		return func(*effect.Record) string { return "" }
	}
	ei := effectinterceptor.New(log, &effectinterceptor.Options{Policy: policy, Tenant: tenantFlag(cmd)})
	return func(r *effect.Record) string {
		server, err := ei.ProbedOn(cmd.Context(), r)
		if err != nil {
			return "" // it is not found out that way, whyever
		}
		return server
	}
}

// waits says what somebody does for each effect that waits.
type waits struct {
	flags  *waitingFlags
	now    time.Time
	probed func(*effect.Record) string
}

func (ws *waits) print(w io.Writer, list []*effect.Record) error {
	p := paletteFor(w)
	table := &columns{
		out:   w,
		heads: ws.flags.withTenant([]string{"BEGUN", "STATE", "SERVER", "TOOL", "WHO", "ARGUMENTS", "ID", "NEXT"}, "TENANT"),
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
		rows = append(rows, ws.flags.withTenant([]string{
			localTime(r.CreatedAt), string(r.StateAt(ws.now)), clip(r.Server, 36), clip(r.Tool, 24), clip(who(r), 24),
			clip(string(r.Arguments), 40), r.ID, ws.next(r),
		}, clip(r.Tenant, 36)))
	}
	return table.print(rows)
}

// next is what somebody does for an effect that waits.
func (ws *waits) next(r *effect.Record) string {
	switch r.StateAt(ws.now) {
	case effect.StateAwaitingApproval:
		if a := r.Approval; a.IsApproved() {
			return "approved: its agent sends the call again, until " + localTime(a.UseUntil)
		}
		return "undolog approve or deny, until " + localTime(r.Approval.DecideUntil)
	case effect.StateInDoubt:
		if server := ws.probed(r); server != "" {
			return "undolog resolve --probe, which asks " + clip(server, 36)
		}
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
