package main

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
)

// serverFlags are those of the programs that keep effects, gateway and serve.
type serverFlags struct {
	listen, tokens, policy, admin string
	approvalURL                   string
	joining, heartbeat, patience  time.Duration
	reapEvery                     time.Duration
	shadow                        bool
	webhook                       webhookFlags
	probeServers                  []string
}

func (f *serverFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.policy, "policy", "", "policy file (see \"undolog policy\"); read again when it changes and on SIGHUP")
	flags.BoolVar(&f.shadow, "shadow", false, "with --policy: decide and record, and hold nothing back (see \"undolog report\")")
	flags.StringVar(&f.approvalURL, "approval-url", "", "URL of the page where people decide on calls, told to agents (see \"undolog ui\"); a slash and an id follow it")
	flags.StringVar(&f.admin, "admin", "", "with --http: tell health (/healthz), readiness (/readyz) and counts (/metrics) at this address, to whoever asks")
	duration(cmd, &f.heartbeat, "heartbeat", 10*time.Second, "how long after its last sign of life this process's open calls count as lost")
	duration(cmd, &f.reapEvery, "reap-every", 30*time.Second, "how often the log is looked through for what is over; 0 is never (see \"undolog reap\")")
	flags.StringArrayVar(&f.probeServers, "probe-server", nil, "NAME=URL or \"NAME=COMMAND ARGS…\": a server on which probes of the policy look up lost outcomes, beside the call's own; its words are split at spaces")
	f.webhook.add(cmd)
	duration(cmd, &f.patience, "db-wait", 30*time.Second, "how long a call waits for an effect log that does not answer, before it is refused")
}

func (f *serverFlags) check() error {
	if err := f.webhook.check(); err != nil {
		return err
	}
	switch {
	case f.shadow && f.policy == "":
		return usagef("--shadow tries out a policy: give --policy FILE")
	case f.tokens != "" && f.listen == "":
		return usagef("--tokens is for --http")
	case f.admin != "" && f.listen == "":
		return usagef("--admin is for --http")
	case f.heartbeat < 200*time.Millisecond:
		return usagef("--heartbeat %s: want at least 200ms", f.heartbeat)
	case f.patience < 100*time.Millisecond:
		return usagef("--db-wait %s: want at least 100ms", f.patience)
	case f.approvalURL != "" && !isEndpoint(f.approvalURL):
		return usagef("--approval-url %s: want http://HOST/PATH or https://HOST/PATH", f.approvalURL)
	case f.reapEvery < 0:
		return usagef("--reap-every cannot be negative")
	case f.joining < 0:
		return usagef("--join-wait cannot be negative")
	case f.listen != "":
		return checkListen(f.listen, f.tokens)
	}
	return nil
}

// kept is what a program that keeps effects runs on.
type kept struct {
	log    *openedLog
	policy *effect.Policy
	logger *slog.Logger
	vault  *effectinterceptor.Vault // of what the logger must not write
	admin  *admin
	untell func() // ends telling the webhook

	keep atomic.Int64 // the retention of the policy in force
}

// retention is how long the policy in force keeps payloads.
func (k *kept) retention() time.Duration { return time.Duration(k.keep.Load()) }

// open opens the log, and tells of it at --admin.
func (f *serverFlags) open(cmd *cobra.Command) (*kept, error) {
	logger, err := newLogger(cmd)
	if err != nil {
		return nil, err
	}
	vault := effectinterceptor.NewVault()
	logger = slog.New(vault.Handler(logger.Handler()))
	policy, err := f.loadPolicy()
	if err != nil {
		return nil, err
	}
	log, err := openLog(cmd, logger, opening{ttl: f.heartbeat, patience: f.patience})
	if err != nil {
		return nil, err
	}
	k := &kept{log: log, policy: policy, logger: logger, vault: vault, untell: func() {}}
	if err := errors.Join(log.place.keepFromServers(), f.tellWebhook(cmd, k), k.tell(cmd, f.admin)); err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

func (f *serverFlags) tellWebhook(cmd *cobra.Command, k *kept) error {
	tenants, err := tenantsOf(cmd, f.tokens)
	if err != nil {
		return err
	}
	stop, err := f.webhook.start(cmd.Context(), k.log.Log, k.logger, tenants, f.approvalURL)
	if err == nil {
		k.untell = stop
	}
	return err
}

// loadPolicy reads the file of --policy; nil without one.
func (f *serverFlags) loadPolicy() (*effect.Policy, error) {
	policy, err := loadPolicy(f.policy)
	if policy != nil && f.shadow {
		policy = policy.InShadow()
	}
	return policy, err
}

// watchPolicy has ei follow the file of --policy until ctx ends.
func (f *serverFlags) watchPolicy(ctx context.Context, k *kept, ei *effectinterceptor.Interceptors) {
	if k.policy == nil {
		return
	}
	k.keep.Store(int64(k.policy.Retention))
	apply := func(ctx context.Context, p *effect.Policy) {
		k.keep.Store(int64(p.Retention))
		ei.SetPolicy(ctx, p)
	}
	w := &policyWatch{path: f.policy, load: f.loadPolicy, apply: apply, logger: k.logger, digest: k.policy.Digest}
	w.start(ctx)
}

func (k *kept) tell(cmd *cobra.Command, addr string) (err error) {
	if addr == "" {
		return nil
	}
	k.admin, err = startAdmin(cmd, addr, k.log)
	return err
}

// close ends what open began.
func (k *kept) close() error {
	k.untell()
	return errors.Join(k.admin.close(), k.log.Close())
}
