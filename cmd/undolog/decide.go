package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// decideFlags are those of every command that decides on a call.
type decideFlags struct {
	reason, person string
	span           time.Duration // of --for
}

func (f *decideFlags) add(cmd *cobra.Command, reason string) {
	cmd.Flags().StringVar(&f.reason, "reason", "", reason)
	cmd.Flags().StringVar(&f.person, "by", "", "who decides, user:NAME (default user:<your name>)")
}

func (f *decideFlags) decision(kind effect.DecisionKind) effect.Decision {
	d := effect.Decision{Kind: kind, By: f.person, Reason: f.reason, Via: "cli", Extend: f.span}
	if d.By == "" {
		d.By = localUser()
	}
	return d
}

func approveCommand() *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use:   "approve ID[=DIGEST]…",
		Short: "Approve a call that waits for it",
		Long: `Approve a call, with exactly the arguments that "undolog show ID" shows: the next time its agent makes
it, within the policy's use_within, it runs once. Other arguments, another tool or another caller need an
approval of their own.

Several calls at once are each named with the digest of what was looked at ("undolog approvals --digests"):
a call that was changed meanwhile is not approved.`,
		Example: `  undolog approve 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42`,
		Args:    someCalls,

		ValidArgsFunction: completeIDs(effect.StateAwaitingApproval),
		RunE: func(cmd *cobra.Command, args []string) error {
			return decideEach(cmd, args, f.decision(effect.DecideApprove))
		},
	}
	f.add(cmd, "why; kept in the log")
	return cmd
}

func denyCommand() *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use:   "deny ID[=DIGEST]… --reason TEXT",
		Short: "Deny a call that waits for approval",
		Long: `Deny a call: it is not made, and its agent is told the reason, now and whenever it makes the same call
again. "undolog reopen" lets it be decided on once more.`,
		Example: `  undolog deny 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42 --reason "wrong account: refunds go to the payer"`,
		Args:    someCalls,

		ValidArgsFunction: completeIDs(effect.StateAwaitingApproval),
		RunE: func(cmd *cobra.Command, args []string) error {
			return decideEach(cmd, args, f.decision(effect.DecideDeny))
		},
	}
	f.add(cmd, "why; required, and told to the agent")
	return cmd
}

func withdrawCommand() *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use:     "withdraw ID --reason TEXT",
		Short:   "Take an approval back that was not used yet",
		Long:    `Take an approval back before its call was made. The call is denied; its agent is told the reason.`,
		Example: `  undolog withdraw 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42 --reason "approved the wrong one"`,
		Args:    exactArgs(1, "the id of an effect"),

		ValidArgsFunction: completeIDs(effect.StateAwaitingApproval),
		RunE: func(cmd *cobra.Command, args []string) error {
			return decideEach(cmd, args, f.decision(effect.DecideWithdraw))
		},
	}
	f.add(cmd, "why; required, and told to the agent")
	return cmd
}

func reopenCommand() *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use:     "reopen ID",
		Short:   "Let a denied call be decided on once more",
		Long:    `Let a denied call be decided on once more, for as long as it was open before. It is not approved by that.`,
		Example: `  undolog reopen 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42 --reason "the account was right after all"`,
		Args:    exactArgs(1, "the id of an effect"),

		ValidArgsFunction: completeIDs(effect.StateDenied),
		RunE: func(cmd *cobra.Command, args []string) error {
			return decideEach(cmd, args, f.decision(effect.DecideReopen))
		},
	}
	f.add(cmd, "why; kept in the log")
	return cmd
}

func extendCommand() *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use:     "extend ID --for DURATION",
		Short:   "Give people more time to decide on a call",
		Example: `  undolog extend 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42 --for 48h`,
		Args:    exactArgs(1, "the id of an effect"),

		ValidArgsFunction: completeIDs(effect.StateAwaitingApproval),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.span <= 0 {
				return usagef("--for %s: say for how long from now, such as 48h", f.span)
			}
			return decideEach(cmd, args, f.decision(effect.DecideExtend))
		},
	}
	f.add(cmd, "why; kept in the log")
	duration(cmd, &f.span, "for", 0, "for how long from now, such as 48h or 2d, whatever was left before")
	return cmd
}

// someCalls wants one call or several, these with their digests.
func someCalls(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("%s takes the id of an effect; see %q", cmd.CommandPath(), cmd.CommandPath()+" --help")
	}
	for _, arg := range args {
		if len(args) > 1 && !strings.Contains(arg, "=") {
			return usagef("%s: several calls at once are each named ID=DIGEST, as \"undolog approvals --digests\" lists them", arg)
		}
	}
	return nil
}

// decideEach decides on each call that is named ID or ID=DIGEST. What cannot be decided is told, and does not
// keep the others from it.
func decideEach(cmd *cobra.Command, args []string, d effect.Decision) error {
	var failed []error
	err := withLog(cmd, func(log *store.Log) error {
		for _, arg := range args {
			p := &store.DecideParams{Tenant: tenantFlag(cmd), Decision: d}
			var digest string
			p.ID, digest, _ = strings.Cut(arg, "=")
			if digest != "" {
				var err error
				if p.Complete, err = effect.ParseDigest(digest); err != nil {
					return usagef("%s: %w", arg, err)
				}
			}
			if err := decideOne(cmd, log, p); err != nil {
				failed = append(failed, err)
			}
		}
		return nil
	})
	return errors.Join(err, errors.Join(failed...))
}

func decideOne(cmd *cobra.Command, log *store.Log, p *store.DecideParams) error {
	r, err := log.Decide(cmd.Context(), p)
	if decided, ok := errors.AsType[*effect.DecidedError](err); ok {
		text := fmt.Sprintf("effect %s: %v", p.ID, decided)
		if decided.Same {
			fmt.Fprintln(cmd.OutOrStdout(), text)
			return nil
		}
		return &saidError{text + ": nothing was changed", err}
	}
	if err != nil {
		return notThere(cmd, p.ID, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "effect %s %s\n", r.ID, decidedWords(r, p.Kind))
	return nil
}

// decidedWords says what a decision has done and what comes next.
func decidedWords(r *effect.Record, kind effect.DecisionKind) string {
	a := r.Approval
	switch kind {
	case effect.DecideApprove:
		if n := a.Missing(); n > 0 {
			return fmt.Sprintf("has your approval; it needs %d more", n)
		}
		return fmt.Sprintf("is approved: the same call runs, once, until %s", localTime(a.UseUntil))
	case effect.DecideDeny:
		return "is denied: the call is not made"
	case effect.DecideWithdraw:
		return "is denied: its approval is withdrawn"
	case effect.DecideExtend:
		return "can be decided until " + localTime(a.DecideUntil)
	case effect.DecideReopen:
		return "can be decided again until " + localTime(a.DecideUntil)
	}
	return "has other arguments now; it needs approval as it is"
}
