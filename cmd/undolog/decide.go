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
	cmd.Flags().StringVar(&f.person, "by", "", "who decides, user:NAME, recorded as it is given (default user:<your name>)")
}

// byUsage is for commands by which whoever has the log says what is so.
const byUsage = "who says so, recorded as it is given (default user:<your name>)"

// who is the person who decides.
func (f *decideFlags) who() (string, error) {
	if f.person == "" {
		return localUser(), nil
	}
	if name, isUser := strings.CutPrefix(f.person, "user:"); !isUser || name == "" {
		return "", usagef("--by %s: who decides is named user:NAME", f.person)
	}
	return f.person, nil
}

func (f *decideFlags) decision(kind effect.DecisionKind) (effect.Decision, error) {
	by, err := f.who()
	if err == nil && strings.TrimSpace(f.reason) == "" && kind.NeedsReason() {
		err = usagef("a reason is missing: say why with --reason TEXT; the agent is told")
	}
	return effect.Decision{Kind: kind, By: by, Reason: f.reason, Via: "cli", Extend: f.span}, err
}

// deciding is a command that decides on a call by no more than its flags.
type deciding struct {
	kind                      effect.DecisionKind
	use, short, long, example string
	reason                    string       // what --reason is for
	from                      effect.State // what can be decided on so
	many                      bool         // several calls at once
	span                      string       // what --for is for; empty: there is none
}

var decidings = []deciding{
	{
		kind:  effect.DecideApprove,
		use:   "approve ID[=DIGEST]…",
		short: "Approve a call that waits for it",
		long: `Approve a call, with exactly the arguments that "undolog show ID" shows: the next time its agent makes
it, within the policy's use_within, it runs once. Other arguments, another tool or another caller need an
approval of their own.

Several calls at once are each named with the digest of what was looked at ("undolog approvals --digests"):
a call that was changed meanwhile is not approved.`,
		example: `  undolog approve 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42`,
		reason:  "why; kept in the log",
		from:    effect.StateAwaitingApproval,
		many:    true,
	},
	{
		kind:  effect.DecideDeny,
		use:   "deny ID[=DIGEST]… --reason TEXT",
		short: "Deny a call that waits for approval",
		long: `Deny a call: it is not made, and its agent is told the reason, now and whenever it makes the same call
again. "undolog reopen" lets it be decided on once more.`,
		example: `  undolog deny 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42 --reason "wrong account: refunds go to the payer"`,
		reason:  "why; required, and told to the agent",
		from:    effect.StateAwaitingApproval,
		many:    true,
	},
	{
		kind:    effect.DecideExtend,
		use:     "extend ID --for DURATION",
		short:   "Give people more time to decide on a call",
		example: `  undolog extend 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42 --for 48h`,
		reason:  "why; kept in the log",
		from:    effect.StateAwaitingApproval,
		span:    "for how long from now, such as 48h or 2d, whatever was left before",
	},
	{
		kind:    effect.DecideWithdraw,
		use:     "withdraw ID --reason TEXT",
		short:   "Take an approval back that was not used yet",
		long:    `Take an approval back before its call was made. The call is denied; its agent is told the reason.`,
		example: `  undolog withdraw 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42 --reason "approved the wrong one"`,
		reason:  "why; required, and told to the agent",
		from:    effect.StateAwaitingApproval,
	},
	{
		kind:    effect.DecideReopen,
		use:     "reopen ID",
		short:   "Let a denied call be decided on once more",
		long:    `Let a denied call be decided on once more, for as long as it was open before. It is not approved by that.`,
		example: `  undolog reopen 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42 --reason "the account was right after all"`,
		reason:  "why; kept in the log",
		from:    effect.StateDenied,
	},
}

func decideCommands() []*cobra.Command {
	var cmds []*cobra.Command
	for _, d := range decidings {
		cmds = append(cmds, d.command())
	}
	return cmds
}

func (d deciding) command() *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use: d.use, Short: d.short, Long: d.long, Example: d.example,
		Args: exactArgs(1, "the id of an effect"), ValidArgsFunction: completeIDs(d.from),
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.span != "" && f.span <= 0 {
				return usagef("--for %s: say for how long from now, such as 48h or 2d", f.span)
			}
			decision, err := f.decision(d.kind)
			if err != nil {
				return err
			}
			return decideEach(cmd, args, decision)
		},
	}
	if d.many {
		cmd.Args = someCalls
	}
	f.add(cmd, d.reason)
	if d.span != "" {
		duration(cmd, &f.span, "for", 0, d.span)
	}
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
// keep the others from it; what cannot be read keeps all.
func decideEach(cmd *cobra.Command, args []string, d effect.Decision) error {
	var calls []*store.DecideParams
	for _, arg := range args {
		p := &store.DecideParams{Tenant: tenantFlag(cmd), Decision: d}
		id, digest, named := strings.Cut(arg, "=")
		p.ID = id
		if named {
			var err error
			if p.Complete, err = effect.ParseDigest(digest); err != nil {
				return usagef("%s: %w", arg, err)
			}
		}
		calls = append(calls, p)
	}
	var failed []error
	err := withLog(cmd, func(log *store.Log) error {
		for _, p := range calls {
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
