package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/chainfile"
	"github.com/undolog/undolog/effectchain"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/hosts"
	"github.com/undolog/undolog/interceptors"
)

// newGatewayChain makes the chain of a gateway: our own interceptors, and those of the file's hosts. The
// hosts are closed when the chain has been drained.
func newGatewayChain(cmd *cobra.Command, ei *effectinterceptor.Interceptors, path string, logger *slog.Logger) (*chain.Chain, []*hosts.Host, error) {
	file := &chainfile.File{}
	if path != "" {
		var err error
		if file, err = loadChain(path); err != nil {
			return nil, nil, err
		}
	}
	c, err := effectchain.New(ei, &effectchain.Options{Logger: logger, Posture: chain.PostureGateway, Deadline: file.Deadline})
	if err != nil {
		return nil, nil, err
	}
	used, err := file.Use(c, &chainfile.Options{Lookup: os.LookupEnv, Logger: logger, Stderr: cmd.ErrOrStderr()})
	if err != nil {
		return nil, nil, fmt.Errorf("use %s: %w", path, err)
	}
	return c, used, nil
}

func loadChain(path string) (*chainfile.File, error) {
	data, err := readSettings(path)
	if err != nil {
		return nil, fmt.Errorf("read chain file: %w", err)
	}
	file, err := chainfile.Parse(path, data)
	if err != nil {
		return nil, fmt.Errorf("check chain file: %w", err)
	}
	return file, nil
}

func chainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "chain",
		Short: "Check and explain the interceptors of a gateway",
		Long: `A gateway runs UndoLog's own interceptors, and those of other people's hosts that a chain file names. They
stand at two boundaries: toward the agent requests are validated before they are changed and responses
after, toward the server the other way round. docs/chain.md describes the file.`,
		Example: "  undolog chain explain tools/call request --chain chain.yaml",
	}
	cmd.AddCommand(chainExplainCommand(), chainCheckCommand(), chainSchemaCommand())
	return cmd
}

func chainCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "check FILE",
		Short:   "Check a chain file",
		Example: "  undolog chain check chain.yaml",
		Args:    exactArgs(1, "the chain file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := loadChain(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is a valid chain file (%d hosts)\n", args[0], len(file.Hosts))
			return nil
		},
	}
}

func chainSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of chain files",
		Example: "  undolog chain schema > chain.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), chainfile.Schema())
			return err
		},
	}
}

type explainFlags struct {
	chain, side, protocol string
	json                  bool
}

func chainExplainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain EVENT request|response [--chain FILE]",
		Short: "Say which interceptors run on an event, in which order, and why",
		Long: `Ask every host for its interceptors and print what a gateway makes of them for one phase of an event: those
that run, in order, then those that do not, each with the reasons. What a server asks of its client
(sampling/createMessage, elicitation/create, roots/list) passes the boundaries the other way round.`,
		Example: `  undolog chain explain tools/call request
  undolog chain explain tools/list response --chain chain.yaml --protocol 2025-11-25`,
		Args: exactArgs(2, "an event and a phase"),
		RunE: func(cmd *cobra.Command, args []string) error { return runExplain(cmd, args[0], args[1], &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.chain, "chain", "", "chain file (default UndoLog's own interceptors alone)")
	flags.StringVar(&f.side, "side", "", "only what stands at this boundary: agent or upstream")
	flags.StringVar(&f.protocol, "protocol", "", "negotiated MCP revision, for interceptors that are made for some (default unknown)")
	flags.BoolVar(&f.json, "json", false, "one JSON object a line")
	return cmd
}

func (f *explainFlags) check(phase string) error {
	switch {
	case phase != string(interceptors.PhaseRequest) && phase != string(interceptors.PhaseResponse):
		return usagef("phase %s: want request or response", phase)
	case f.side != "" && f.side != string(chain.SideAgent) && f.side != string(chain.SideUpstream):
		return usagef("--side %s: want agent or upstream", f.side)
	}
	return nil
}

func runExplain(cmd *cobra.Command, event, phase string, f *explainFlags) error {
	if err := f.check(phase); err != nil {
		return err
	}
	logger, err := newLogger(cmd)
	if err != nil {
		return err
	}
	// Without a log: the interceptors are listed, none is called.
	c, others, err := newGatewayChain(cmd, effectinterceptor.New(nil, nil), f.chain, logger)
	if err != nil {
		return err
	}
	defer chainfile.Close(others)
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
	defer cancel()
	req := &chain.Request{Protocol: f.protocol, FromServer: chain.AskedByServer(event)}
	explained := c.Explain(ctx, event, interceptors.Phase(phase), req)
	if f.side != "" {
		explained = slices.DeleteFunc(explained, func(e chain.Explanation) bool { return string(e.Side) != f.side })
	}
	if f.json {
		return printExplanationJSON(cmd.OutOrStdout(), explained)
	}
	return printExplanation(cmd.OutOrStdout(), explained)
}

func printExplanation(w io.Writer, explained []chain.Explanation) error {
	p := paletteFor(w)
	for _, e := range explained {
		place := "-"
		if e.Position > 0 {
			place = strconv.Itoa(e.Position)
		}
		facts := []string{"of host " + printable(e.Host), string(e.Type), "at the " + string(e.Side), string(cmp.Or(e.Mode, interceptors.ModeActive))}
		if e.FailOpen {
			facts = append(facts, "fails open")
		}
		fmt.Fprintf(w, "%2s  %s  %s\n", place, p.bold(printable(e.Name)), strings.Join(facts, ", "))
		for _, reason := range e.Reasons {
			fmt.Fprintf(w, "      %s\n", printable(reason))
		}
	}
	if len(explained) == 0 {
		fmt.Fprintln(w, "no interceptors")
	}
	return nil
}

func printExplanationJSON(w io.Writer, explained []chain.Explanation) error {
	for _, e := range explained {
		line := struct {
			Position int               `json:"position,omitempty"`
			Host     string            `json:"host"`
			Name     string            `json:"name"`
			Version  string            `json:"version,omitempty"`
			Type     interceptors.Type `json:"type"`
			Side     chain.Side        `json:"side"`
			Mode     interceptors.Mode `json:"mode"`
			FailOpen bool              `json:"failOpen"`
			Priority int32             `json:"priority"`
			Missing  bool              `json:"missing,omitempty"`
			Reasons  []string          `json:"reasons"`
		}{
			e.Position, e.Host, e.Name, e.Version, e.Type, e.Side, cmp.Or(e.Mode, interceptors.ModeActive),
			e.FailOpen, e.Priority, e.Missing, e.Reasons,
		}
		if err := writeJSON(w, line); err != nil {
			return err
		}
	}
	return nil
}
