package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/chainfile"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/gateway"
	"github.com/undolog/undolog/hosts"
	"github.com/undolog/undolog/internal/faults"
	"github.com/undolog/undolog/internal/splice"
	"github.com/undolog/undolog/reaper"
)

type gatewayFlags struct {
	serverFlags
	upstream        string
	headers         []string
	name, principal string
	chain           string
	scrub           bool
	drain, hold     time.Duration
	maxHeld         int
	noElicitation   string
	maxResult       string
}

func gatewayCommand() *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:   "gateway [flags] (-- COMMAND ARGS… | --upstream URL)",
		Short: "Stand between an agent and an MCP server",
		Long: `Stand between an agent and an MCP server, and record every call that changes something before it
happens. In an agent's MCP configuration, put "undolog gateway --" in front of the server's command.

The server is a command (MCP over its standard input and output) or a URL (Streamable HTTP). The agent is
served on standard input and output, or with --http on Streamable HTTP at every protocol revision up to
2026-07-28 at once. Everything that is not a tool call passes unchanged.

Without a policy file nothing asks. A call that comes again because its answer never arrived is answered
from the record; one that comes again after its answer arrived is a new call and runs. What is a read and
what is safe to repeat is taken from the server's own annotations.`,
		Example: `  undolog gateway -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  undolog gateway --http 127.0.0.1:8460 --upstream https://mcp.example.com/mcp --header Authorization=env:MCP_TOKEN`,
		RunE: func(cmd *cobra.Command, args []string) error { return runGateway(cmd, args, &f) },
	}
	mayMeanServer(cmd)
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.upstream, "upstream", "", "URL of a Streamable HTTP server, in place of a command")
	flags.StringArrayVar(&f.headers, "header", nil, "NAME=env:VAR: header for an HTTP upstream, its value from the environment")
	flags.StringVar(&f.listen, "http", "", "serve agents on Streamable HTTP at this address, in place of standard input and output")
	flags.StringVar(&f.tokens, "tokens", "", "file with the bearer tokens of HTTP agents: a YAML list of {token, tenant, principal}; needed beyond loopback")
	flags.StringVar(&f.chain, "chain", "", "file that names interceptor hosts to ask beside UndoLog's own (see \"undolog chain\")")
	flags.BoolVar(&f.scrub, "scrub-errors", false, "pass the server's protocol errors on without their text")
	flags.StringVar(&f.name, "name", "", "name of the server in the log and in policies (default its own name and a hash of its command line or URL)")
	flags.StringVar(&f.principal, "principal", "", "who calls, where no token says so (default agent:<your name>)")
	duration(cmd, &f.drain, "drain", 30*time.Second, "how long calls under way are awaited when the agent leaves")
	duration(cmd, &f.hold, "hold", 45*time.Second, "how long a call that waits for approval is held before it is answered with the reason; 0 is not at all")
	flags.IntVar(&f.maxHeld, "max-held", 1000, "how many calls are held at once; those beyond are answered with the reason at once, and stay to be decided")
	flags.StringVar(&f.noElicitation, "no-elicitation", "block", "what agents from 2026-07-28 on get that cannot ask their user: block holds the call, then says why; error is the protocol's error for a missing capability, at once")
	duration(cmd, &f.joining, "join-wait", 45*time.Second, "how long a call waits for the outcome of an equal one that is under way")
	flags.StringVar(&f.maxResult, "max-result", "64MB", "largest answer of the server that is passed on")
	return cmd
}

func (f *gatewayFlags) check(args []string) error {
	switch {
	case f.upstream == "" && len(args) == 0:
		return usagef("name the server to stand in front of: undolog gateway -- COMMAND ARGS…, or --upstream URL")
	case f.upstream != "" && len(args) > 0:
		return usagef("--upstream and a command are two servers: give one")
	case len(f.headers) > 0 && f.upstream == "":
		return usagef("--header is for --upstream")
	case f.drain < 0:
		return usagef("--drain cannot be negative")
	case f.hold < 0:
		return usagef("--hold cannot be negative")
	case f.maxHeld < 1:
		return usagef("--max-held %d: want 1 or more; --hold 0 holds nothing", f.maxHeld)
	case f.noElicitation != "block" && f.noElicitation != "error":
		return usagef("--no-elicitation %s: want block or error", f.noElicitation)
	case f.upstream != "" && !isEndpoint(f.upstream):
		return usagef("--upstream %s: want http://HOST/PATH or https://HOST/PATH", f.upstream)
	}
	return f.serverFlags.check()
}

func runGateway(cmd *cobra.Command, args []string, f *gatewayFlags) (err error) {
	if err := f.check(args); err != nil {
		return err
	}
	k, err := f.open(cmd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	policy, logger := k.policy, k.logger
	probes, err := parseProbeServers(f.probeServers, logger)
	if err != nil {
		return err
	}
	ei := effectinterceptor.New(k.log.Log, &effectinterceptor.Options{
		Policy: policy, Trust: func(string) bool { return policy == nil }, Delivery: true,
		Tenant: tenantFlag(cmd), JoinWait: f.joining, Logger: logger, Vault: k.vault, ApprovalURL: f.approvalURL, ProbeServers: probes.asides(),
		Now: faults.Now,
	})
	defer ei.Close()
	k.admin.count(ei)
	f.watchPolicy(cmd.Context(), k, ei)
	opts, err := f.options(args, logger)
	if err != nil {
		return err
	}
	p := f.prober(ei, probes, opts)
	defer p.close()
	defer f.reap(cmd.Context(), k, reaper.Options{Probe: p.probe, Retention: k.retention})()
	var others []*hosts.Host
	if opts.Chain, others, err = newGatewayChain(cmd, ei, f.chain, logger); err != nil {
		return err
	}
	defer chainfile.Close(others)
	defer drain(opts.Chain, logger)
	announce(cmd, k, f)
	if f.listen != "" {
		return f.serveHTTP(cmd, gateway.New(opts), logger)
	}
	outlivePipes()
	agent := gateway.NewLineConn(os.Stdin, os.Stdout, &gateway.LineOptions{})
	return gateway.New(opts).Serve(cmd.Context(), agent, gateway.AgentInfo{Tenant: tenantFlag(cmd), Principal: f.caller()})
}

// drain lets what the end of the upstream has decided be recorded before the log is closed.
func drain(c *chain.Chain, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := c.Drain(ctx); err != nil {
		logger.Warn("calls were still under way: they are in doubt", slog.Any("error", err))
	}
}

func (f *gatewayFlags) options(args []string, logger *slog.Logger) (*gateway.Options, error) {
	limit, err := parseSize(f.maxResult)
	if err != nil {
		return nil, usagef("--max-result: %w", err)
	}
	opts := &gateway.Options{
		Logger: logger, Name: f.name, Prime: true, MaxResult: limit, Drain: f.drain,
		Attributes: attributes, ScrubErrors: f.scrub,
	}
	opts.TakeUp = f.heartbeat * 3 / 2 // who died just before counts as alive for one
	if f.drain == 0 {
		opts.Drain = -1
	}
	opts.MaxHeld = f.maxHeld
	if opts.Hold = f.hold; f.hold == 0 {
		opts.Hold = -1
	}
	opts.RequireElicitation = f.noElicitation == "error"
	header, err := parseHeaders(f.headers)
	if err != nil {
		return nil, err
	}
	up := &upstream{command: args, url: f.upstream, header: header, maxResult: limit, logger: logger}
	opts.Target, opts.Label, opts.Dial = up.target(), up.label(), up.dial
	return opts, nil
}

// prober looks up what is in doubt on the servers of --probe-server and on the upstream itself, which it reaches
// on a connection of its own.
func (f *gatewayFlags) prober(ei *effectinterceptor.Interceptors, others probeServers, opts *gateway.Options) *prober {
	return &prober{ei: ei, others: others, own: newProbeServer(gateway.AskerOptions{
		Dial: opts.Dial, Target: opts.Target, Label: opts.Label, Name: opts.Name, Logger: opts.Logger,
	})}
}

func (f *gatewayFlags) caller() string {
	if f.principal != "" {
		return f.principal
	}
	return localAgent()
}

// attributes tells interceptors what the params do not hold: the server's name, and the handles that an
// HTTP agent sent as headers.
func attributes(m *gateway.Message, p *gateway.Peer) map[string]json.RawMessage {
	a := map[string]json.RawMessage{"dev.undolog/server": splice.Quote(p.Server)}
	header := http.Header(m.Header)
	keys := slices.Compact(slices.Clone(header.Values("Idempotency-Key"))) // several are one list, to HTTP
	if key := strings.Join(keys, ", "); key != "" {
		a["dev.undolog/idempotency-key"] = splice.Quote(key)
	}
	if run := header.Get("X-Undolog-Session-Id"); run != "" {
		a["dev.undolog/run"] = splice.Quote(run)
	}
	return a
}

func (f *gatewayFlags) serveHTTP(cmd *cobra.Command, gw *gateway.Gateway, logger *slog.Logger) error {
	opts := &gateway.HTTPOptions{Tenant: tenantFlag(cmd), Principal: f.caller(), Logger: logger}
	if f.tokens != "" {
		verify, err := gateway.LoadTokens(f.tokens)
		if err != nil {
			return err
		}
		opts.Verifier = verify
	}
	handler := gateway.NewHTTPHandler(gw, opts)
	l, err := handler.Listen(f.listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "undolog: listening on http://%s/mcp\n", l.Addr())
	err = handler.Serve(cmd.Context(), l, f.drain)
	ctx, cancel := context.WithTimeout(context.Background(), f.drain+10*time.Second)
	defer cancel()
	return errors.Join(err, gw.Close(ctx))
}

func isEndpoint(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// checkListen keeps an endpoint that asks nobody who they are on this machine.
func checkListen(addr, tokens string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return usagef("--http %s: want HOST:PORT, such as 127.0.0.1:8460", addr)
	}
	if tokens == "" && !isLoopback(addr) {
		return usagef("--http %s is reachable from other machines: give --tokens FILE, or listen on 127.0.0.1", addr)
	}
	return nil
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// parseHeaders reads NAME=env:VAR. A value on the command line is refused: every process on the machine
// could read it.
func parseHeaders(specs []string) (http.Header, error) {
	h := http.Header{}
	for _, spec := range specs {
		name, source, ok := strings.Cut(spec, "=")
		variable, fromEnv := strings.CutPrefix(source, "env:")
		if !ok || !fromEnv || name == "" || variable == "" {
			return nil, usagef("--header %s: want NAME=env:VAR, the value comes from the environment variable VAR", name)
		}
		value, set := os.LookupEnv(variable)
		if !set {
			return nil, usagef("--header %s: the environment variable %s is not set", name, variable)
		}
		h.Add(name, value)
	}
	return h, nil
}

// announce says at start what is promised and what is not.
func announce(cmd *cobra.Command, k *kept, f *gatewayFlags) {
	w := cmd.ErrOrStderr()
	if k.policy != nil {
		fmt.Fprintf(w, "undolog: policy %s; effects in %s\n", f.policy, k.log.place)
		if f.shadow {
			fmt.Fprintln(w, "undolog: --shadow: nothing is held back, and no call is kept from running twice; \"undolog report\" tells what would have been")
		}
		for _, warning := range k.policy.Warnings() {
			fmt.Fprintln(w, "undolog: "+warning)
		}
		return
	}
	fmt.Fprintf(w, "undolog: no policy file (begin one with \"undolog policy init\"): nothing asks for approval; "+
		"a call whose answer never arrived is answered from the record, a repeat of an answered one runs; effects in %s\n", k.log.place)
}
