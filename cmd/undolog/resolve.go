package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

type resolveFlags struct {
	committed, notApplied  bool
	result, reason, person string
	probe                  probeFlags
}

func resolveCommand() *cobra.Command {
	var f resolveFlags
	cmd := &cobra.Command{
		Use:   "resolve ID (--committed [--result FILE] [--reason TEXT] | --not-applied --reason TEXT) | resolve ID --probe --policy FILE (-- COMMAND ARGS… | --upstream URL)",
		Short: "Settle an effect whose outcome was lost",
		Long: `Settle an effect that is in doubt (or waits for a round or task that will not come), after somebody has
looked at the target.

With --committed it took effect: the same call sent again is answered from the record, with --result as
its answer or else with a text that says who confirmed it. With --not-applied it did not: the same call
sent again runs.

With --probe the target is asked, by the probe that the policy names for the tool: a call that only reads.
What it says settles the effect; where it cannot tell nothing is changed. The server is the one that has the
probe's tool.`,
		Example: `  undolog resolve 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42 --committed --reason "charge ch_17 is in the ledger"
  undolog resolve 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42 --not-applied --reason "no such charge at the bank"
  undolog resolve 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42 --probe --policy undolog.yaml -- payments --ledger payments.jsonl`,
		Args: func(cmd *cobra.Command, args []string) error {
			return exactArgs(1, "the id of an effect")(cmd, args[:len(args)-len(afterDash(cmd, args))])
		},

		ValidArgsFunction: completeIDs(effect.StateInDoubt, effect.StateWaiting),

		RunE: func(cmd *cobra.Command, args []string) error {
			f.probe.command = afterDash(cmd, args)
			if f.probe.wanted {
				return runProbe(cmd, args[0], &f)
			}
			return runResolve(cmd, args[0], &f)
		},
	}
	f.probe.add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.committed, "committed", false, "it took effect")
	flags.BoolVar(&f.notApplied, "not-applied", false, "it did not take effect")
	flags.StringVar(&f.result, "result", "", "with --committed: file with the tool result (a JSON object) that later calls get; - for standard input")
	flags.StringVar(&f.reason, "reason", "", "how you know; required with --not-applied")
	flags.StringVar(&f.person, "by", "", byUsage)
	return cmd
}

func runResolve(cmd *cobra.Command, id string, f *resolveFlags) error {
	p, err := f.params(cmd, id)
	if err != nil {
		return err
	}
	return withLog(cmd, func(log *store.Log) error {
		r, err := log.Resolve(cmd.Context(), *p)
		if err != nil {
			return notResolved(notThere(cmd, id, err), log.Now())
		}
		next := "the same call sent again is answered from the record"
		if p.To == effect.StateFailed {
			next = "the same call sent again runs"
		}
		fmt.Fprintf(cmd.OutOrStdout(), "effect %s is %s: %s\n", r.ID, r.State, next)
		return nil
	})
}

func (f *resolveFlags) params(cmd *cobra.Command, id string) (*store.ResolveParams, error) {
	p := &store.ResolveParams{Tenant: tenantFlag(cmd), ID: id, To: effect.StateCommitted, By: f.person, Reason: f.reason}
	if p.By == "" {
		p.By = localUser()
	}
	switch {
	case f.probe.isGiven():
		return nil, usagef("a server, --upstream, --header and --policy go with --probe")
	case f.committed == f.notApplied:
		return nil, usagef("say --committed or --not-applied, after looking at the target")
	case f.notApplied && f.result != "":
		return nil, usagef("--result goes with --committed")
	case f.notApplied && f.reason == "":
		return nil, usagef("--not-applied lets the same call run again: say with --reason how you know")
	case f.notApplied:
		p.To = effect.StateFailed
	}
	if f.result == "" {
		return p, nil
	}
	var err error
	p.Result, err = readResult(cmd.InOrStdin(), f.result)
	return p, err
}

func readResult(in io.Reader, path string) (json.RawMessage, error) {
	var data []byte
	var err error
	if path == "-" {
		data, err = io.ReadAll(in)
	} else {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read --result: %w", err)
	}
	v := jsontext.Value(data)
	if err := v.Compact(); err != nil || v.Kind() != '{' {
		return nil, usagef(`--result %s: want a tool result, a JSON object such as {"content":[{"type":"text","text":"done"}]}`, path)
	}
	return json.RawMessage(v), nil
}
