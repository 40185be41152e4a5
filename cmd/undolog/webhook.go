package main

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/internal/tokenfile"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/webhook"
)

// webhookFlags say whom a program tells of what waits for people.
type webhookFlags struct{ url, secret string }

func (f *webhookFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.url, "webhook", "", "URL that is told of what waits for people, and of what they decide; signed as Standard Webhooks has it")
	flags.StringVar(&f.secret, "webhook-secret", "", "env:VAR: what --webhook is signed with, from the environment: whsec_BASE64, or 16 characters or more")
}

func (f *webhookFlags) check() error {
	switch {
	case f.url == "" && f.secret == "":
		return nil
	case f.url == "":
		return usagef("--webhook-secret is for --webhook")
	case !isEndpoint(f.url):
		return usagef("--webhook: want http://HOST/PATH or https://HOST/PATH")
	case f.secret == "":
		return usagef("--webhook needs --webhook-secret env:VAR: who gets the messages must be able to tell that they are ours")
	}
	_, err := f.variable()
	return err
}

// variable is the name of the environment variable that has the secret.
func (f *webhookFlags) variable() (string, error) {
	name, fromEnv := strings.CutPrefix(f.secret, "env:")
	if !fromEnv || name == "" {
		return "", usagef("--webhook-secret: want env:VAR, the secret comes from the environment variable VAR")
	}
	return name, nil
}

// start tells until ctx ends or what it returns is called, which waits until nothing is being told any more.
// link is where people look at an effect; empty: nowhere.
func (f *webhookFlags) start(ctx context.Context, log *store.Log, logger *slog.Logger, tenants []string, link string) (stop func(), err error) {
	if f.url == "" {
		return func() {}, nil
	}
	secret, err := f.readSecret()
	if err != nil {
		return nil, err
	}
	opts := &webhook.Options{URL: f.url, Secret: secret, Tenants: tenants, Logger: logger}
	if link != "" {
		opts.Link = func(id string) string { return strings.TrimSuffix(link, "/") + "/" + id }
	}
	teller, err := webhook.New(log, opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = teller.Run(ctx) // it has said so itself
	}()
	return func() { cancel(); <-done }, nil
}

// readSecret takes the secret out of the environment, so that the servers that we start do not get it.
func (f *webhookFlags) readSecret() ([]byte, error) {
	name, err := f.variable()
	if err != nil {
		return nil, err
	}
	text, set := os.LookupEnv(name)
	if !set {
		return nil, usagef("--webhook-secret: the environment variable %s is not set", name)
	}
	secret, err := webhook.ParseSecret(text)
	if err != nil {
		return nil, usagef("--webhook-secret: %w", err)
	}
	return secret, os.Unsetenv(name)
}

// tenantsOf are the tenant of --tenant and those that a file of tokens names.
func tenantsOf(cmd *cobra.Command, tokens string) ([]string, error) {
	tenants := []string{tenantFlag(cmd)}
	if tokens == "" {
		return tenants, nil
	}
	holders, err := tokenfile.Read(tokens)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{"": true, tenants[0]: true}
	for _, h := range holders {
		if !known[h.Tenant] {
			known[h.Tenant] = true
			tenants = append(tenants, h.Tenant)
		}
	}
	return tenants, nil
}
