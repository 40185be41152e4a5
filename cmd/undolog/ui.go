package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/httpapi"
)

type uiFlags struct {
	listen, tokens, url string
	agentTokens         []string
	webhook             webhookFlags
}

func uiCommand() *cobra.Command {
	var f uiFlags
	cmd := &cobra.Command{
		Use:   "ui [--listen ADDR] [--tokens FILE]",
		Short: "Serve the page and the API by which people decide",
		Long: `Serve a page that lists what waits for people (calls that need approval, outcomes that were lost), with
the buttons to decide, and the same as an HTTP API (/v1, described by /openapi.json).

Without --tokens it serves you alone, on this machine: it prints a link that logs one browser in, as
user:<your name>, and the next one when it was used. Beyond loopback give --tokens, a file only you may read:
a YAML list of {token, tenant, principal}, with principal user:NAME. Who shows a token decides as its principal,
whatever a request says. An agent's token must not be among them: name the gateways' files with --agent-tokens,
and a token that is in both is refused.

It speaks HTTP: beyond your own machine put it behind a proxy with TLS, and give the proxy's URL as --url. Give
that URL, or the one that it prints, with /approvals as --approval-url to gateways, so that agents and webhooks
say where to decide. Any number of these programs serve one log; it needs no gateway to run.`,
		Example: `  undolog ui --listen 127.0.0.1:8480
  undolog ui --listen 0.0.0.0:8480 --tokens approvers.yaml --agent-tokens tokens.yaml --url https://approve.example.com`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return runUI(cmd, &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8480", "address to serve at")
	flags.StringVar(&f.tokens, "tokens", "", "file with the bearer tokens of approvers: a YAML list of {token, tenant, principal: user:NAME}; needed beyond loopback")
	flags.StringArrayVar(&f.agentTokens, "agent-tokens", nil, "file with the tokens of agents (gateway --tokens): none of them may be an approver's; may be given several times")
	flags.StringVar(&f.url, "url", "", "URL at which browsers reach it, where that is not the address")
	f.webhook.add(cmd)
	return cmd
}

func (f *uiFlags) check() error {
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return usagef("--listen %s: want HOST:PORT, such as 127.0.0.1:8480", f.listen)
	}
	switch {
	case f.tokens == "" && !isLoopback(f.listen):
		return usagef("--listen %s is reachable from other machines: give --tokens FILE, or listen on 127.0.0.1", f.listen)
	case len(f.agentTokens) > 0 && f.tokens == "":
		return usagef("--agent-tokens is for --tokens")
	case f.url != "" && !isEndpoint(f.url):
		return usagef("--url %s: want http://HOST or https://HOST", f.url)
	}
	return f.webhook.check()
}

func runUI(cmd *cobra.Command, f *uiFlags) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	logger, err := newLogger(cmd)
	if err != nil {
		return err
	}
	approvers, err := f.approvers(cmd)
	if err != nil {
		return err
	}
	log, err := openLog(cmd, logger, opening{patience: commandPatience})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	return f.serve(cmd, log, logger, approvers)
}

func (f *uiFlags) serve(cmd *cobra.Command, log *openedLog, logger *slog.Logger, approvers []httpapi.Approver) error {
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", f.listen, err)
	}
	defer l.Close() // closed before, when it has served
	base, err := f.base(l)
	if err != nil {
		return err
	}
	ui := &ui{cmd: cmd, base: base}
	opts := &httpapi.Options{Approvers: approvers, Logger: logger, Invited: ui.invite}
	if f.url != "" {
		opts.URL = base
	}
	if ui.handler, err = httpapi.New(log.Log, opts); err != nil {
		return err
	}
	stop, err := f.webhook.start(cmd.Context(), log.Log, logger, tenantsServed(approvers), base.JoinPath("approvals").String())
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintf(cmd.ErrOrStderr(), "undolog: effects in %s\nundolog: listening on %s\n", log.place, strings.TrimSuffix(base.String(), "/"))
	if f.tokens == "" {
		ui.invite(approvers[0].Name)
	}
	return serveUntil(cmd.Context(), l, ui.handler, shutdownGrace)
}

// base is where browsers find the page.
func (f *uiFlags) base(l net.Listener) (*url.URL, error) {
	if f.url == "" {
		return &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/"}, nil
	}
	u, err := url.Parse(f.url)
	if err != nil || u.Path != "" && u.Path != "/" {
		return nil, usagef("--url %s: want no path: the page is at the root of its host", f.url)
	}
	u.Path = "/"
	return u, nil
}

// ui invites the person who has started the program.
type ui struct {
	cmd     *cobra.Command
	base    *url.URL
	handler *httpapi.Handler
}

// invite prints a link that works once. With tokens nobody is invited, and nobody who was invites the next.
func (u *ui) invite(name string) {
	fmt.Fprintf(u.cmd.ErrOrStderr(), "undolog: log one browser in as %s: %s#login=%s\n", name, u.base, u.handler.Invite(name))
}

// serveUntil serves until ctx ends, and then answers what is under way for as long as it may take.
func serveUntil(ctx context.Context, l net.Listener, handler http.Handler, grace time.Duration) error {
	server := &http.Server{Handler: endStreams(ctx, handler), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve http: %w", err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return server.Shutdown(ctx)
}
