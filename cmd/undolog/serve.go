package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/gateway"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/reaper"
)

type serveFlags struct {
	serverFlags
	stdio, strict, trust bool
}

func serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve (--stdio | --http ADDR)",
		Short: "Serve the interceptors to somebody else's gateway or chain",
		Long: `Serve undolog/guard, undolog/effect, undolog/audit and undolog/catalog as a remote interceptor server
(SEP-2624): found by interceptors/list, called by interceptor/invoke.

The other side's engine must call undolog/effect last before the target and first after it. One that does
not know "dev.undolog/respond" sees a failing mutator for a repeated call and blocks it: a call never runs
twice because an engine is foreign. What such an engine does not tell (errors of the target, lost answers)
ends in doubt when the claim's lease is over (policy: lease).`,
		Example: `  undolog serve --http 127.0.0.1:8461
  undolog serve --stdio --policy undolog.yaml`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return runServe(cmd, &f) },
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.stdio, "stdio", false, "serve on standard input and output")
	flags.StringVar(&f.listen, "http", "", "serve on Streamable HTTP at this address")
	flags.StringVar(&f.tokens, "tokens", "", "file with the bearer tokens of invokers: a YAML list of {token, tenant, principal}; needed beyond loopback")
	flags.BoolVar(&f.strict, "strict-wire", false, "send exactly the flat results of the fixtures, without the nested mirror that older Go engines need")
	flags.BoolVar(&f.trust, "trust-annotations", false, "without a policy: believe the annotations of every server's tools")
	duration(cmd, &f.joining, "join-wait", 20*time.Second, "how long a call waits for the outcome of an equal one that is under way")
	return cmd
}

func runServe(cmd *cobra.Command, f *serveFlags) (err error) {
	if f.stdio == (f.listen != "") {
		return usagef("say --stdio or --http ADDR")
	}
	if err := f.check(); err != nil {
		return err
	}
	k, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	probes, err := parseProbeServers(f.probeServers, k.logger)
	if err != nil {
		return err
	}
	ei := effectinterceptor.New(k.log.Log, &effectinterceptor.Options{
		Policy: k.policy, Trust: func(string) bool { return k.policy == nil && f.trust },
		Tenant: tenantFlag(cmd), JoinWait: f.joining, Logger: k.logger, Vault: k.vault, ApprovalURL: f.approvalURL, ProbeServers: probes.asides(),
	})
	defer ei.Close()
	k.admin.count(ei)
	f.watchPolicy(cmd.Context(), k, ei)
	p := &prober{ei: ei, others: probes}
	defer p.close()
	defer f.reap(cmd.Context(), k, reaper.Options{Probe: p.probe, Retention: k.retention})()
	host := interceptors.NewServer(&interceptors.ServerOptions{Logger: k.logger, LegacyEnvelope: !f.strict, MaxConcurrent: 256})
	if err := ei.Register(host, effectinterceptor.ForeignEngine); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "undolog: interceptor server; effects in %s\n", k.log.place)
	if f.stdio {
		outlivePipes()
		return serveStdio(cmd, host)
	}
	return f.serveHTTP(cmd, host)
}

func serveStdio(cmd *cobra.Command, host *interceptors.Server) error {
	server, err := host.MCPServer(implementation())
	if err != nil {
		return err
	}
	err = server.Run(cmd.Context(), &mcp.StdioTransport{MaxLineLength: 64 << 20})
	if cmd.Context().Err() != nil {
		return nil
	}
	return err
}

func (f *serveFlags) serveHTTP(cmd *cobra.Command, host *interceptors.Server) error {
	handler, err := host.Handler(&interceptors.HTTPOptions{Implementation: implementation(), MaxBodyBytes: 64 << 20})
	if err != nil {
		return err
	}
	if f.tokens != "" {
		verify, err := gateway.LoadTokens(f.tokens)
		if err != nil {
			return err
		}
		handler = auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(handler)
	}
	return listenAndServe(cmd, f.listen, handler, f.joining+shutdownGrace)
}

// shutdownGrace is how long invocations under way may take to be answered beyond their wait for an equal
// call.
const shutdownGrace = 5 * time.Second

// listenAndServe serves until the command's context ends, and then answers what is under way for as long
// as it may take.
func listenAndServe(cmd *cobra.Command, addr string, handler http.Handler, grace time.Duration) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", addr, err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "undolog: listening on http://%s\n", l.Addr())
	return serveUntil(cmd.Context(), l, handler, grace)
}

// endStreams ends the streams that wait for messages of ours when ctx ends: nobody could say when they are
// answered.
func endStreams(ctx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			stream, end := context.WithCancel(r.Context())
			defer end()
			defer context.AfterFunc(ctx, end)()
			r = r.WithContext(stream)
		}
		next.ServeHTTP(w, r)
	})
}

func implementation() *mcp.Implementation {
	return &mcp.Implementation{Name: "undolog", Version: programVersion()}
}
