package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/enginecheck"
	"github.com/undolog/undolog/conformance/goadapter"
	"github.com/undolog/undolog/conformance/hostcheck"
)

type conformanceFlags struct {
	target, only, expected, format, output string
	fixtures, headers                      []string
	adapter, engine, noSuite, noInvoke     bool
	limited                                bool
	quiet                                  bool
	parallel                               int
	posture, config, engineURL             string
	tokens                                 map[string]string
	alerts                                 bool
	patience                               float64
}

// ownConfig names the configuration of our own gateway.
const ownConfig = "undolog"

func conformanceCommand() *cobra.Command {
	var f conformanceFlags
	cmd := &cobra.Command{
		Use:   "conformance [flags] [--target URL | -- COMMAND ARGS…]",
		Short: "Check an implementation of the interceptor extension",
		Long: `Check an implementation of the MCP interceptor extension, requirement by requirement.

  --target URL            a live interceptor server on HTTP
  -- COMMAND              a live interceptor server on standard input and output
  --adapter -- COMMAND    an adapter in any language, which binds an implementation to the fixtures
  --engine -- COMMAND     an engine: a program that stands before an MCP server and calls interceptor hosts;
                          {hosts} in its arguments becomes the URL of the host, {upstream} that of the server,
                          {config} a file made from --engine-config, {dir} a directory of its own, {listen} a
                          free address; agents are on its standard streams, or where --engine-url says
  (none of these)         UndoLog's own library, over every transport

Fixtures are those built in and those of every --fixtures DIR, which are read in the published format.
Checks of a live server invoke what it lists with a made-up tool call, unless --no-invoke is given.

The exit code is 0 when something passed and nothing failed that --expected-failures does not name. What
that file names must fail: a check of it that passes, or that is not there, fails the run.`,
		Example: `  undolog conformance --target http://127.0.0.1:8461
  undolog conformance --fixtures ./fixtures --adapter -- python3 adapter.py
  undolog conformance --report junit --output report.xml -- ./my-host --stdio`,
		RunE: func(cmd *cobra.Command, args []string) error { return runConformance(cmd, args, &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.target, "target", "", "URL of a live interceptor server")
	flags.StringArrayVar(&f.headers, "header", nil, "NAME=env:VAR: header for the target, its value from the environment")
	flags.BoolVar(&f.adapter, "adapter", false, "the command is an adapter")
	flags.BoolVar(&f.engine, "engine", false, "the command is an engine")
	flags.StringVar(&f.config, "engine-config", "", "template of the engine's configuration, in which the same is replaced; \""+ownConfig+"\" writes the chain file of undolog gateway for each fixture")
	flags.StringVar(&f.engineURL, "engine-url", "", "where the engine serves agents over Streamable HTTP, such as http://{listen}/mcp, in place of its standard streams; {listen} is a free address, in the arguments too")
	flags.StringToStringVar(&f.tokens, "engine-token", nil, "PRINCIPAL=TOKEN: bearer token by which the engine knows a principal of the fixtures, over HTTP; may be repeated")
	flags.BoolVar(&f.alerts, "engine-alerts", false, "the engine tells its operator on standard error: look there for what it must tell")
	flags.BoolVar(&f.limited, "engine-limited", false, "the engine was told to take no answers of the server above a size of at most 2 MB")
	flags.StringVar(&f.posture, "posture", "client", "side of the trust boundary that the engine stands on: client or server")
	flags.StringArrayVar(&f.fixtures, "fixtures", nil, "directory of fixtures in the published format; may be repeated")
	flags.BoolVar(&f.noSuite, "no-suite", false, "leave out the cases that are built in")
	flags.BoolVar(&f.noInvoke, "no-invoke", false, "invoke nothing on a live server")
	flags.StringVar(&f.only, "only", "", "only checks whose id or requirement contains this")
	flags.StringVar(&f.expected, "expected-failures", "", "YAML list of the ids of checks that are known to fail")
	flags.StringVar(&f.format, "report", "text", "text, json or junit")
	flags.StringVar(&f.output, "output", "", "write the report to this file instead of standard output")
	flags.BoolVar(&f.quiet, "quiet", false, "do not show progress")
	flags.Float64Var(&f.patience, "patience", 1, "what time bounds are multiplied by, on a busy machine")
	flags.IntVar(&f.parallel, "parallel", 4, "how many fixtures are tried at a time")
	return cmd
}

func (f *conformanceFlags) check(args []string) error {
	switch {
	case f.target != "" && len(args) > 0:
		return usagef("--target and a command are two subjects: give one")
	case f.adapter && f.engine:
		return usagef("--adapter and --engine: the command is one of them")
	case (f.adapter || f.engine) && len(args) == 0:
		return usagef("name the program: undolog conformance --adapter -- COMMAND")
	case (f.engineURL != "" || len(f.tokens) > 0 || f.alerts) && !f.engine:
		return usagef("--engine-url, --engine-token and --engine-alerts are for --engine")
	case len(f.tokens) > 0 && f.engineURL == "":
		return usagef("--engine-token is for --engine-url: an agent on standard streams shows none")
	case f.format != "text" && f.format != "json" && f.format != "junit":
		return usagef("--report %s: want text, json or junit", f.format)
	case f.posture != "client" && f.posture != "server":
		return usagef("--posture %s: want client or server", f.posture)
	case f.parallel < 1:
		return usagef("--parallel %d: want at least 1", f.parallel)
	}
	return nil
}

func runConformance(cmd *cobra.Command, args []string, f *conformanceFlags) error {
	if err := f.check(args); err != nil {
		return err
	}
	var expected conformance.ExpectedFailures
	if f.expected != "" {
		raw, err := os.ReadFile(f.expected)
		if err != nil {
			return err
		}
		if expected, err = conformance.ParseExpectedFailures(raw); err != nil {
			return usagef("%s: %w", f.expected, err)
		}
	}
	report, err := f.try(cmd, args)
	switch {
	case cmd.Context().Err() != nil: // what was not tried is no verdict
		return cmd.Context().Err()
	case err != nil:
		return err
	}
	expected.Apply(report)
	if err := f.write(cmd, report); err != nil {
		return err
	}
	if !report.OK() {
		return errors.New("not conformant: see the report")
	}
	return nil
}

// try runs what the command line asks for.
func (f *conformanceFlags) try(cmd *cobra.Command, args []string) (*conformance.Report, error) {
	opts := &conformance.Options{Only: f.only, Parallel: f.parallel, Patience: f.patience, Progress: f.progress(cmd)}
	if f.target != "" || len(args) > 0 && !f.adapter && !f.engine {
		header, err := parseHeaders(f.headers)
		if err != nil {
			return nil, err
		}
		return f.tryHost(cmd, args, header, opts)
	}
	fixtures, err := f.load()
	if err != nil {
		return nil, err
	}
	switch {
	case f.adapter:
		return tryAdapter(cmd.Context(), args, fixtures, opts)
	case f.engine:
		return f.tryEngine(cmd, args, fixtures, opts)
	}
	report := &conformance.Report{Suite: conformance.SuiteVersion}
	for _, t := range goadapter.Transports {
		report.Add(conformance.Run(cmd.Context(), fixtures, &goadapter.Adapter{Transport: t}, opts))
	}
	return report, nil
}

func (f *conformanceFlags) tryHost(cmd *cobra.Command, args []string, header http.Header, opts *conformance.Options) (*conformance.Report, error) {
	t := &hostcheck.Target{URL: f.target, Header: header, Command: args, Errs: cmd.ErrOrStderr(), NoInvoke: f.noInvoke}
	return hostcheck.Run(cmd.Context(), t, opts)
}

func (f *conformanceFlags) load() ([]*conformance.Fixture, error) {
	var all []*conformance.Fixture
	if !f.noSuite {
		suite, err := conformance.Suite()
		if err != nil {
			return nil, err
		}
		all = suite
	}
	for _, dir := range f.fixtures {
		found, err := conformance.Load(os.DirFS(dir))
		if err != nil {
			return nil, usagef("--fixtures %s: %w", dir, err)
		}
		if len(found) == 0 {
			return nil, usagef("--fixtures %s: there are none", dir)
		}
		all = append(all, found...)
	}
	return all, nil
}

func tryAdapter(ctx context.Context, args []string, fixtures []*conformance.Fixture, opts *conformance.Options) (*conformance.Report, error) {
	a, err := conformance.StartExternal(ctx, args, os.Stderr)
	if err != nil {
		return nil, err
	}
	report := conformance.Run(ctx, fixtures, a, opts)
	if err := a.Close(); err != nil {
		return nil, fmt.Errorf("end adapter: %w", err)
	}
	return report, nil
}

func (f *conformanceFlags) tryEngine(cmd *cobra.Command, args []string, fixtures []*conformance.Fixture, opts *conformance.Options) (*conformance.Report, error) {
	e := &enginecheck.Engine{Command: args, Posture: conformance.Posture(f.posture), Limited: f.limited, Errs: cmd.ErrOrStderr(),
		URL: f.engineURL, Tokens: f.tokens, Alerts: f.alerts}
	switch f.config {
	case "":
	case ownConfig:
		e.Configure, e.Arguments = chainFileFor(e.Posture), gatewayArguments
	default:
		raw, err := os.ReadFile(f.config)
		if err != nil {
			return nil, err
		}
		e.Config = string(raw)
	}
	return enginecheck.Run(cmd.Context(), e, fixtures, opts), nil
}

// progress shows one line that is written over, on a terminal.
func (f *conformanceFlags) progress(cmd *cobra.Command) func(conformance.Result, int, int) {
	errs := cmd.ErrOrStderr()
	if f.quiet || !bool(paletteFor(errs)) {
		return nil
	}
	return func(r conformance.Result, done, total int) {
		fmt.Fprintf(errs, "\r\x1b[K%d/%d %s", done, total, clip(r.ID, 60))
		if done == total {
			fmt.Fprint(errs, "\r\x1b[K")
		}
	}
}

func (f *conformanceFlags) write(cmd *cobra.Command, report *conformance.Report) (err error) {
	var w io.Writer = cmd.OutOrStdout()
	if f.output != "" {
		file, createErr := os.Create(f.output)
		if createErr != nil {
			return createErr
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		w = file
	}
	switch f.format {
	case "json":
		return report.WriteJSON(w)
	case "junit":
		return report.WriteJUnit(w)
	}
	return report.WriteText(w, bool(paletteFor(w)))
}
