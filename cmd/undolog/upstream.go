package main

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/undolog/undolog/gateway"
)

// upstream is an MCP server that we connect to: a command or a URL.
type upstream struct {
	command   []string
	url       string // in place of a command
	header    http.Header
	maxResult int64
	logger    *slog.Logger
}

func (u *upstream) dial(ctx context.Context, _ *gateway.AgentInfo) (gateway.Conn, error) {
	if u.url == "" {
		return gateway.StartProcess(ctx, u.command, &gateway.ProcessOptions{Logger: u.logger, Limits: &gateway.Limits{MaxBytes: u.maxResult}})
	}
	return gateway.DialHTTP(ctx, u.url, &gateway.UpstreamOptions{Header: u.header, MaxResult: u.maxResult, Logger: u.logger})
}

// target is the command line or the URL, whole.
func (u *upstream) target() string {
	if u.url == "" {
		return strings.Join(u.command, " ")
	}
	return u.url
}

// label is target in a word, and without secrets.
func (u *upstream) label() string {
	if u.url == "" {
		return commandName(u.command)
	}
	return withoutSecrets(u.url)
}
