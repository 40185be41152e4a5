package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/store"
)

type pruneFlags struct {
	olderThan      time.Duration
	policy, server string
	everyTenant    bool
	dryRun, json   bool
}

func pruneCommand() *cobra.Command {
	var f pruneFlags
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Take away the arguments and answers of effects that were settled long ago",
		Long: `Take away the arguments and answers of effects that were settled longer ago than --older-than, or than the
retention of a policy. Everything else stays, so that nothing that has run runs again for it: a call that comes
again is recognised as before, and told that its answer is no longer kept. What is open keeps everything.

It is done in many short transactions, beside gateways that run, and can be interrupted and begun again. A policy
with "retention" has "undolog gateway" and "undolog serve" do it by themselves. The file of a SQLite log does not
become smaller: later effects use the room.`,
		Example: `  undolog prune --older-than 30d --dry-run
  undolog prune --older-than 30d --all-tenants
  undolog prune --policy undolog.yaml --all-tenants`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return runPrune(cmd, &f) },
	}
	flags := cmd.Flags()
	duration(cmd, &f.olderThan, "older-than", 0, "how long ago an effect was settled at the least, such as 30d")
	flags.StringVar(&f.policy, "policy", "", "policy file whose retention is meant, in place of --older-than")
	flags.StringVar(&f.server, "server", "", "only effects of this server, by its whole name")
	flags.BoolVar(&f.everyTenant, "all-tenants", false, "of every tenant, not only of --tenant")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only count what would be taken away")
	flags.BoolVar(&f.json, "json", false, "one JSON object")
	return cmd
}

func runPrune(cmd *cobra.Command, f *pruneFlags) error {
	age, err := f.age(cmd.Flags().Changed("older-than"))
	if err != nil {
		return err
	}
	if f.everyTenant && cmd.Flags().Changed("tenant") {
		return usagef("--all-tenants and --tenant cannot both be meant")
	}
	return withLog(cmd, func(log *store.Log) error {
		p := &store.Pruning{
			Before: log.Now().Add(-age), Tenant: tenantFlag(cmd), Server: f.server, Dry: f.dryRun,
			Progress: pruneProgress(cmd.ErrOrStderr(), time.Now),
		}
		if f.everyTenant {
			p.Tenant = ""
		}
		done, err := log.Prune(cmd.Context(), p)
		return errors.Join(f.say(cmd.OutOrStdout(), done), interruptedPrune(err))
	})
}

// age is how long ago what is pruned was settled. given says that --older-than was.
func (f *pruneFlags) age(given bool) (time.Duration, error) {
	switch {
	case f.policy != "" && f.olderThan != 0:
		return 0, usagef("--older-than and --policy cannot both be meant")
	case f.policy == "" && f.olderThan <= 0 && given:
		return 0, usagef("--older-than %s: want longer than nothing, such as 30d; 1ms is all that is settled", f.olderThan)
	case f.policy == "" && f.olderThan <= 0:
		return 0, usagef("say how long payloads are kept: --older-than 30d, or --policy FILE with a retention")
	case f.policy == "":
		return f.olderThan, nil
	}
	policy, err := loadPolicy(f.policy)
	if err != nil {
		return 0, err
	}
	if policy.Retention == 0 {
		return 0, usagef("policy %s has no retention: it keeps everything", f.policy)
	}
	return policy.Retention, nil
}

func (f *pruneFlags) say(w io.Writer, done store.Pruned) error {
	if f.json {
		return writeJSON(w, done)
	}
	verb := "pruned"
	if f.dryRun {
		verb = "would prune"
	}
	_, err := fmt.Fprintf(w, "%s %d effects of %d looked at, %s of arguments and answers\n", verb, done.Effects, done.Looked, megabytes(done.Bytes))
	return err
}

// megabytes is a size in words.
func megabytes(bytes int64) string {
	if bytes < 1e6 {
		return fmt.Sprintf("%d bytes", bytes)
	}
	return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
}

// interruptedPrune says what an interrupt has left.
func interruptedPrune(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted: what was counted is pruned; run it again for the rest")
	}
	return err
}

// pruneProgress tells how far it is, every few seconds.
func pruneProgress(w io.Writer, now func() time.Time) func(store.Pruned) {
	told := now()
	return func(so store.Pruned) {
		if now().Sub(told) < progressEvery {
			return
		}
		told = now()
		fmt.Fprintf(w, "%d effects looked at, %d with payloads to take away, %s\n", so.Looked, so.Effects, megabytes(so.Bytes))
	}
}

const progressEvery = 2 * time.Second
