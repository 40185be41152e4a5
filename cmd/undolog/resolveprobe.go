package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/gateway"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
)

// probeFlags are those of "undolog resolve --probe".
type probeFlags struct {
	wanted           bool
	policy, upstream string
	headers          []string
	command          []string
}

func (f *probeFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.wanted, "probe", false, "ask the target, by the probe of the policy")
	flags.StringVar(&f.policy, "policy", "", "with --probe: the policy file")
	flags.StringVar(&f.upstream, "upstream", "", "with --probe: URL of the Streamable HTTP server to ask, in place of a command")
	flags.StringArrayVar(&f.headers, "header", nil, "with --upstream: NAME=env:VAR, a header with its value from the environment")
}

func (f *probeFlags) isGiven() bool {
	return f.policy != "" || f.upstream != "" || len(f.headers) > 0 || len(f.command) > 0
}

func (f *resolveFlags) checkProbe() error {
	switch p := &f.probe; {
	case f.committed, f.notApplied, f.result != "", f.person != "":
		return usagef("--probe says itself what happened: leave --committed, --not-applied, --result and --by out")
	case p.policy == "":
		return usagef("--probe is by the policy: give --policy FILE")
	case (p.upstream == "") == (len(p.command) == 0):
		return usagef("name the server to ask: -- COMMAND ARGS…, or --upstream URL")
	case p.upstream != "" && !isEndpoint(p.upstream):
		return usagef("--upstream %s: want http://HOST/PATH or https://HOST/PATH", p.upstream)
	case len(p.headers) > 0 && p.upstream == "":
		return usagef("--header is for --upstream")
	}
	return nil
}

// afterDash is the command that stands after --.
func afterDash(cmd *cobra.Command, args []string) []string {
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		return args[at:]
	}
	return nil
}

// errCannotTell ends the command with an error: the effect is in doubt as before.
var errCannotTell = errors.New("the probe cannot tell: nothing was changed")

func runProbe(cmd *cobra.Command, id string, f *resolveFlags) error {
	if err := f.checkProbe(); err != nil {
		return err
	}
	policy, err := loadPolicy(f.probe.policy)
	if err != nil {
		return err
	}
	header, err := parseHeaders(f.probe.headers)
	if err != nil {
		return err
	}
	logger, err := newLogger(cmd)
	if err != nil {
		return err
	}
	up := &upstream{command: f.probe.command, url: f.probe.upstream, header: header, logger: logger}
	asker := gateway.NewAsker(&gateway.AskerOptions{
		Dial: up.dial, Target: up.target(), Label: up.label(), Version: programVersion(), Logger: logger,
	})
	defer asker.Close()
	return withLog(cmd, func(log *store.Log) error {
		return probeOne(cmd, log, policy, id, asker.Ask)
	})
}

// probeOne looks up one effect. The server that a person names has the probe's tool, whatever it is called.
func probeOne(cmd *cobra.Command, log *store.Log, policy *effect.Policy, id string, ask interceptors.Aside) error {
	ctx, tenant := cmd.Context(), tenantFlag(cmd)
	shown, err := log.Show(ctx, tenant, id)
	if err != nil {
		return notThere(cmd, id, err)
	}
	opts := &effectinterceptor.Options{Policy: policy, Tenant: tenant}
	server, err := effectinterceptor.New(log, opts).ProbedOn(ctx, shown.Record)
	if err != nil {
		return err
	}
	opts.ProbeServers = map[string]interceptors.Aside{server: ask}
	said, err := effectinterceptor.New(log, opts).Probe(ctx, shown.Record, nil)
	if err != nil {
		return notResolved(err, log.Now())
	}
	return tellProbed(cmd.OutOrStdout(), said)
}

func tellProbed(w io.Writer, said *effectinterceptor.Probed) error {
	fmt.Fprintf(w, "%s says: %s\n", said.Tool, said.Verdict)
	switch {
	case said.Why != "":
		return fmt.Errorf("%w (%s)", errCannotTell, said.Why)
	case !said.Settled:
		return errCannotTell
	}
	fmt.Fprintf(w, "effect %s is %s\n", said.Record.ID, said.Record.State)
	return nil
}
