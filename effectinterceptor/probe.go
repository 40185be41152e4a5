package effectinterceptor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
	"github.com/undolog/undolog/store"
)

// ProbePrincipal is who makes the calls of probes, in the log.
const ProbePrincipal = "undolog:probe"

// ErrNoProbe says that the policy names no probe for an effect's tool.
var ErrNoProbe = errors.New("the policy names no probe for it")

// Probed is what became of an effect whose outcome a probe looked up.
type Probed struct {
	Tool    string              // of the probe
	Verdict effect.ProbeVerdict // what the probe said
	Why     string              // why it cannot tell; empty where it can
	Settled bool                // the effect is in doubt no longer: by this probe, or by who was first
	Record  *effect.Record      // as it then is
}

// Probe looks up the outcome of an effect in doubt by the probe that the policy in force names for its tool,
// and settles the effect by what it says; the first who settles an attempt wins. target asks the effect's own
// server, nil where it cannot be asked; other servers are those of Options.ProbeServers. It fails with ErrNoProbe, with a
// *store.ConflictError for an effect that is not in doubt, and when the log cannot be written. What keeps the
// probe itself from being made is ProbeUnknown.
func (i *Interceptors) Probe(ctx context.Context, r *effect.Record, target interceptors.Aside) (*Probed, error) {
	if r.StateAt(i.log.Now()) != effect.StateInDoubt {
		return nil, fmt.Errorf("probe effect %s: %w", r.ID, &store.ConflictError{ID: r.ID, Want: effect.StateCommitted, Record: r})
	}
	call := sentCall(r)
	contract, err := i.contractOf(ctx, i.policy.Load(), call)
	switch {
	case err != nil:
		return nil, fmt.Errorf("probe effect %s: %w", r.ID, err)
	case contract.Probe == nil:
		return nil, fmt.Errorf("probe effect %s of %s on %s: %w", r.ID, r.Tool, r.Server, ErrNoProbe)
	}
	p := &probing{Interceptors: i, record: r, call: call, contract: contract, target: target}
	return p.run(ctx)
}

// ProbedOn is the server on which the probe for an effect is made. It fails with ErrNoProbe.
func (i *Interceptors) ProbedOn(ctx context.Context, r *effect.Record) (string, error) {
	contract, err := i.contractOf(ctx, i.policy.Load(), sentCall(r))
	switch {
	case err != nil:
		return "", fmt.Errorf("find probe of effect %s: %w", r.ID, err)
	case contract.Probe == nil:
		return "", fmt.Errorf("find probe of effect %s: %w", r.ID, ErrNoProbe)
	}
	return cmp.Or(contract.Probe.Server, r.Server), nil
}

// doubt is what a caller gets whose call is in doubt: a reason, or nil when a probe has settled it and the log
// is to be asked again. A call probes once.
func (i *Interceptors) doubt(ctx context.Context, in *interceptors.Invocation, o *open, r *effect.Record) error {
	if o.contract.Probe == nil || o.probed || r == nil {
		return inDoubt(o.identity, r).block(codeInternal)
	}
	o.probed = true
	p := &probing{Interceptors: i, record: r, call: sentAgain(r, o), contract: o.contract, target: in.Aside}
	said, err := p.run(ctx)
	switch {
	case err != nil:
		return i.stopUnavailable(ctx, o.call, err)
	case said.Settled:
		return nil
	}
	return unprobed(o.identity, r, said).block(codeInternal)
}

// sentCall is the recorded call under the key that its target got.
func sentCall(r *effect.Record) *effect.Call {
	call := callOf(r)
	if call.Key = r.ID; r.Rule == effect.RuleKey {
		call.Key = r.Scope
	}
	return call
}

// sentAgain is sentCall for a call that comes again and so knows what was not kept of it.
func sentAgain(r *effect.Record, o *open) *effect.Call {
	call := sentCall(r)
	call.Secrets, call.Definition, call.Annotations = o.call.Secrets, o.call.Definition, o.call.Annotations
	if o.identity.Rule == effect.RuleKey {
		call.Key = o.identity.Scope
	}
	if whole, err := effect.NewRedaction(o.contract.Redact).Fill(call.Arguments, o.call.Arguments); err == nil {
		call.Arguments = whole
	}
	return call
}

// probing is one effect in doubt being looked up.
type probing struct {
	*Interceptors
	record   *effect.Record
	call     *effect.Call // as it was sent
	contract *effect.Contract
	target   interceptors.Aside
}

func (p *probing) run(ctx context.Context) (*Probed, error) {
	said := &Probed{Tool: p.contract.Probe.Tool, Verdict: effect.ProbeUnknown, Record: p.record}
	verdict, result, err := p.ask(ctx)
	if err != nil {
		said.Why = interceptors.Brief(p.opts.Vault.Text(p.call.Secrets.Text(err.Error())))
		p.opts.Logger.WarnContext(ctx, "probe cannot tell", slog.String("effect", p.record.ID), slog.String("probe", said.Tool), slog.String("why", said.Why))
		return said, nil
	}
	if said.Verdict = verdict; verdict == effect.ProbeUnknown {
		return said, nil
	}
	settled, err := p.settle(ctx, verdict, result)
	if conflict, moved := errors.AsType[*store.ConflictError](err); moved {
		settled, err = conflict.Record, nil
	}
	if err != nil {
		return nil, err
	}
	said.Settled, said.Record = true, settled
	p.opts.Logger.InfoContext(ctx, "probe settled effect", slog.String("effect", p.record.ID), slog.String("probe", said.Tool), slog.String("verdict", string(verdict)))
	return said, nil
}

// ask makes the probe's call and judges its answer.
func (p *probing) ask(ctx context.Context) (effect.ProbeVerdict, json.RawMessage, error) {
	probe := p.contract.Probe
	server := cmp.Or(probe.Server, p.record.Server)
	ask := p.opts.ProbeServers[server]
	if ask == nil && server == p.record.Server {
		ask = p.target
	}
	if ask == nil {
		return "", nil, fmt.Errorf("server %s cannot be asked from here: give --probe-server %s=URL or =COMMAND", server, server)
	}
	arguments, err := probe.Arguments(p.call)
	if err != nil {
		return "", nil, fmt.Errorf("make its arguments: %w", err)
	}
	read := &effect.Call{Tenant: p.record.Tenant, Principal: ProbePrincipal, Server: server, Tool: probe.Tool, Arguments: arguments}
	contract, err := p.contractOf(ctx, p.policy.Load(), read)
	switch {
	case err != nil:
		return "", nil, fmt.Errorf("judge it: %w", err)
	case contract.Tier != effect.TierRead:
		return "", nil, fmt.Errorf("tool %s on %s is %s (%s), and a probe only reads: it was not called", probe.Tool, server, contract.Tier, contract.Source)
	}
	out, err := p.read(ctx, ask, read, contract)
	if err != nil {
		return "", nil, err
	}
	verdict, result, err := probe.Verdict(p.call, out.Answer.Body, out.Answer.IsError)
	if err != nil {
		return "", nil, fmt.Errorf("judge its answer: %w", err)
	}
	return verdict, result, nil
}

// read makes the call and records it, as any read is.
func (p *probing) read(ctx context.Context, ask interceptors.Aside, call *effect.Call, c *effect.Contract) (effect.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.ProbeWait)
	defer cancel()
	params, err := splice.Encode(struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}{call.Tool, call.Arguments})
	if err != nil {
		return effect.Outcome{}, fmt.Errorf("encode it: %w", err)
	}
	call.Recorded, call.Secrets = effect.NewRedaction(c.Redact).Keep(call.Arguments, p.call.Secrets)
	o := &open{call: call, contract: c, started: p.opts.Now()}
	result, err := ask(ctx, "tools/call", params)
	if err != nil {
		p.recordRead(o, p.redacted(o, effect.Outcome{Kind: effect.OutcomeLost, Reason: interceptors.Brief(err.Error())}))
		return effect.Outcome{}, err
	}
	out := classify(result, nil)
	p.recordRead(o, p.redacted(o, out))
	if out.Kind != effect.OutcomeAnswered {
		return out, errors.New("it was answered with a question or a task, and no result")
	}
	return out, nil
}

// settle records a verdict that tells. A result is kept as the call's own would have been.
func (p *probing) settle(ctx context.Context, verdict effect.ProbeVerdict, result json.RawMessage) (*effect.Record, error) {
	said := store.ResolveParams{
		Tenant: p.record.Tenant, ID: p.record.ID, Attempt: p.record.Attempt, By: "probe:" + p.contract.Probe.Tool, To: effect.StateCommitted,
	}
	if verdict == effect.ProbeNotApplied {
		said.To, said.Reason = effect.StateFailed, "the probe says that it was not applied"
	}
	if result != nil {
		said.Result, _ = effect.NewRedaction(p.contract.RedactResult).Keep(completed(result), p.call.Secrets)
	}
	return p.log.Resolve(context.WithoutCancel(ctx), said)
}

// completed is a result with the member that clients require from 2026-07-28 on.
func completed(result json.RawMessage) json.RawMessage {
	if splice.Get(result, "resultType") != nil {
		return result
	}
	marked, err := splice.Set(result, []byte(`"complete"`), "resultType")
	if err != nil {
		return result
	}
	return marked
}
