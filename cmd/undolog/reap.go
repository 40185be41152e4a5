package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/reaper"
	"github.com/undolog/undolog/store"
)

func reapCommand() *cobra.Command {
	var asJSON bool
	var policy string
	var servers []string
	cmd := &cobra.Command{
		Use:   "reap",
		Short: "Record what is over, of every tenant, once",
		Long: `Look through what is open in the log once: requests for approval whose time is over are recorded as
expired or void, claims whose process has gone or whose answer did not come in time as in doubt, and who may
decide is reminded when four fifths of the time are over. With --policy, what is in doubt is looked up by the
probes of the policy, on the servers that --probe-server names, and arguments and answers that were kept for longer
than its retention are pruned ("undolog prune"). "undolog gateway" and "undolog serve" do all of it by themselves
every --reap-every; this is for logs that neither has open.`,
		Example: `  undolog reap
  undolog reap --policy undolog.yaml --probe-server "payments=payments --ledger payments.jsonl"`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if policy == "" && len(servers) > 0 {
				return usagef("--probe-server is for the probes of a policy: give --policy FILE")
			}
			return withLog(cmd, func(log *store.Log) error {
				p, err := newReapProber(cmd, log, policy, servers)
				if err != nil {
					return err
				}
				defer p.probes.close()
				opts := &reaper.Options{Probe: p.probe, Retention: p.retention, Every: wholeRound}
				done, err := reaper.New(log, opts).Round(cmd.Context())
				defer p.tell(cmd.ErrOrStderr())
				if asJSON {
					return errors.Join(err, writeJSON(cmd.OutOrStdout(), done))
				}
				fmt.Fprintln(cmd.OutOrStdout(), reaped(done, p.retention()))
				return err
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&asJSON, "json", false, "one JSON object")
	flags.StringVar(&policy, "policy", "", "policy file, whose probes look up what is in doubt, and whose retention is how long payloads are kept")
	flags.StringArrayVar(&servers, "probe-server", nil, "with --policy: NAME=URL or \"NAME=COMMAND ARGS…\", a server to ask; its words are split at spaces")
	return cmd
}

// wholeRound has the one round of a command go through the whole log: a reaper that comes again leaves the rest of what
// is pruned for later.
const wholeRound = 24 * time.Hour

func reaped(done reaper.Done, keep time.Duration) string {
	said := fmt.Sprintf("expired %d, void %d, reminded %d, in doubt %d", done.Expired, done.Void, done.Reminded, done.InDoubt)
	if done.Settled+done.Unknown > 0 {
		said += fmt.Sprintf(", settled by probes %d, not told by them %d", done.Settled, done.Unknown)
	}
	if keep > 0 {
		said += fmt.Sprintf(", pruned %d that were kept for longer than %s", done.Pruned, inDays(keep))
	}
	return said
}

// reap has the log looked through every --reap-every until the returned function is called.
func (f *serverFlags) reap(ctx context.Context, k *kept, opts reaper.Options) (stop func()) {
	if f.reapEvery == 0 {
		return func() {}
	}
	opts.Every, opts.Logger = f.reapEvery, k.logger
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		reaper.New(k.log.Log, &opts).Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}
