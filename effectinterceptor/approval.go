package effectinterceptor

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
	"github.com/undolog/undolog/store"
)

// pauseInfo is the member by which our own engine learns that a call waits for people, and handleExtra the
// member of its context by which the call goes on.
const (
	pauseInfo   = "dev.undolog/pause"
	handleExtra = "dev.undolog/handle"
)

// pauseFor is what an engine needs to hold a call, or to ask its requester's user.
type pauseFor struct {
	ID     string    `json:"id"`
	URL    string    `json:"url,omitempty"`
	Text   string    `json:"text"`
	Until  time.Time `json:"until"`
	WaitMs int64     `json:"waitMs"`
	Handle string    `json:"handle"`
	Host   bool      `json:"host,omitempty"`
}

// ask stops a call that people are, or were, asked about.
func (i *Interceptors) ask(ctx context.Context, o *open, begun *store.Begun) error {
	r := begun.Record
	if r == nil || r.Approval == nil {
		return refused(outcomeDenied, begun.Verdict.Reason, o.identity, r).block(codeInternal)
	}
	i.asked.Store(scope{r.Tenant, r.Server}, nil)
	before := ""
	if begun.Verdict.Action == effect.ActRequest && r.Attempt > 1 {
		before = i.lastLapse(ctx, r)
	}
	block := i.awaiting(o.identity, r, before).block(codeInternal)
	if !o.local {
		return block
	}
	pause, err := json.Marshal(pauseFor{
		ID: r.Approval.ID, URL: i.approvalURL(r), Text: question(r), Until: r.Approval.DecideUntil,
		WaitMs: clampMs(r.Approval.DecideUntil.Sub(i.log.Now())), Handle: newHandle(r, o.identity).String(), Host: r.Approval.Host,
	})
	if err != nil {
		return fmt.Errorf("marshal pause of %s: %w", r.ID, err)
	}
	if block.Data, err = splice.Set(block.Data, pause, pauseInfo); err != nil {
		return fmt.Errorf("tell pause of %s: %w", r.ID, err)
	}
	return block
}

// lastLapse says what became of the request before the latest; empty when it did not lapse.
func (i *Interceptors) lastLapse(ctx context.Context, r *effect.Record) string {
	shown, err := i.log.Show(ctx, r.Tenant, r.ID)
	if err != nil {
		return "" // it is said for information alone
	}
	last := *r
	for _, t := range shown.Transitions {
		if t.Attempt < r.Attempt && t.Approval != nil {
			last.State, last.Approval, last.ChangedAt, last.Reason = t.State, t.Approval, t.At, t.Reason
		}
	}
	switch state := last.StateAt(i.log.Now()); {
	case last.Approval.ID == r.Approval.ID:
	case state == effect.StateExpired, state == effect.StateVoid:
		return lapse(&last, state) + " "
	}
	return ""
}

func (i *Interceptors) approvalURL(r *effect.Record) string {
	if i.opts.ApprovalURL == "" {
		return ""
	}
	return strings.TrimSuffix(i.opts.ApprovalURL, "/") + "/" + r.ID
}

// deny is what a call is stopped with that must not run. A request that the policy has overtaken ends with it.
func (i *Interceptors) deny(ctx context.Context, o *open, begun *store.Begun) *info {
	v, r := begun.Verdict, begun.Record
	switch {
	case r != nil && r.State == effect.StateDenied:
		return refusedBy(o.identity, r)
	case o.contract.Deny == "":
		return refused(outcomeDenied, v.Reason, o.identity, r)
	}
	if r != nil && r.State == effect.StateAwaitingApproval {
		i.void(ctx, r, v.Reason)
	}
	return forbidden(v.Reason, o.identity, r)
}

// void ends a request that the policy has overtaken. The claim enforces the policy whether or not it succeeds.
func (i *Interceptors) void(ctx context.Context, r *effect.Record, reason string) {
	_, err := i.log.Void(ctx, r.Tenant, r.ID, "policy does not allow it any more: "+reason)
	if _, moved := errors.AsType[*store.ConflictError](err); err != nil && !moved {
		i.opts.Logger.WarnContext(ctx, "request for approval not ended", slog.String("effect", r.ID), slog.Any("error", err))
	}
}

// approvedCall is the call with the arguments that were approved, as people were shown them: 1.0 and 1 have one
// digest, and large numbers can too that differ in their last digit.
func (i *Interceptors) approvedCall(ctx context.Context, c *toolCall, o *open, begun *store.Begun) (*toolCall, error) {
	r := begun.Record
	asked := begun.Verdict.Action == effect.ActApproved || begun.Verdict.Action == effect.ActContinue
	if !asked || r.Approval == nil {
		return c, nil
	}
	o.edited = editedNote(r)
	arguments, err := effect.NewRedaction(o.contract.Redact).Fill(r.Executed(), o.call.Arguments)
	if err != nil {
		return nil, i.stopInvalid(err)
	}
	if bytes.Equal(arguments, store.OrEmptyObject(o.call.Arguments)) {
		return c, nil
	}
	if begun.Verdict.Action == effect.ActApproved && !r.Approval.IsEdited() {
		if err := i.holdsAlike(ctx, o, r, arguments); err != nil {
			return nil, err
		}
	}
	payload, err := splice.Set(c.payload, arguments, "arguments")
	if err != nil {
		return nil, fmt.Errorf("put approved arguments of %s into the call: %w", r.ID, err)
	}
	return parseCall(payload)
}

// holdsAlike stops a call that was judged, and counted, by its own arguments where the approved ones, which are
// sent in their place, would have been judged or counted otherwise. Both are one call to the log when they differ
// in what is no identity argument.
func (i *Interceptors) holdsAlike(ctx context.Context, o *open, r *effect.Record, arguments json.RawMessage) error {
	call := *o.call
	call.Arguments = arguments
	contract, err := i.contractOf(ctx, i.policy.Load(), &call)
	if err != nil {
		return i.stop(ctx, &call, err)
	}
	approved, err := contract.Spends(&call)
	if err != nil {
		return i.stop(ctx, &call, err)
	}
	came, err := o.contract.Spends(o.call)
	switch {
	case err != nil:
		return i.stop(ctx, o.call, err)
	case contract.Deny != "":
		return forbidden(contract.Deny, o.identity, r).block(codeInternal)
	case contract.Source != o.contract.Source, !slices.Equal(approved, came):
		return refused(outcomeConflict, "what was approved (effect "+r.ID+") has other arguments, and policy has other rules or limits for those. "+
			"The approval is used up: send the call once more, and people are asked about it as it is", o.identity, r).block(codeInternal)
	}
	return nil
}

// handle is by what a call goes on with a request for approval: it is unguessable, and good for nobody but the
// caller that it was given to, with the very same arguments.
type handle struct {
	effect string
	secret string // Approval.Handle
	call   string // what was sent
	shown  string // what people are asked about
}

func newHandle(r *effect.Record, id *effect.Identity) handle {
	return handle{r.ID, r.Approval.Handle, tagOf(id.Complete), tagOf(r.Approval.Complete)}
}

// tagLength is that of what tells arguments apart within one handle.
const tagLength = 24

func tagOf(d effect.Digest) string { return hex.EncodeToString(d[:tagLength/2]) }

func (h handle) String() string {
	return strings.Join([]string{h.effect, h.secret, h.call, h.shown}, ".")
}

func parseHandle(s string) (handle, bool) {
	parts := strings.Split(s, ".")
	if len(parts) != 4 || parts[0] == "" || parts[1] == "" || len(parts[2]) != tagLength || len(parts[3]) != tagLength {
		return handle{}, false
	}
	return handle{parts[0], parts[1], parts[2], parts[3]}, true
}

// of returns the effect whose request the handle was given for. It is nil when the handle is not good for it
// any more, or never was.
func (h handle) of(ctx context.Context, log *store.Log, tenant string) (*effect.Record, error) {
	shown, err := log.Show(ctx, tenant, h.effect)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	r := shown.Record
	if r.Approval == nil || subtle.ConstantTimeCompare([]byte(r.Approval.Handle), []byte(h.secret)) != 1 {
		return nil, nil
	}
	return r, nil
}

// resume checks the handle that a call carries to go on with its request. A request that came to nothing
// stops it: the claim would ask anew, and nobody has asked for that. A call without a handle passes.
func (i *Interceptors) resume(ctx context.Context, in *interceptors.Invocation, o *open) error {
	given := ""
	if o.local {
		given = extra(in, handleExtra)
	}
	if given == "" {
		return nil
	}
	h, ok := parseHandle(given)
	if !ok {
		return strange(o.identity).block(codeInvalidParams)
	}
	r, err := h.of(ctx, i.log, o.call.Tenant)
	switch {
	case err != nil:
		return i.stopUnavailable(ctx, o.call, err)
	case r == nil || r.Principal != o.call.Principal && !o.contract.ShareTenant || r.Signature != o.identity.Signature || h.call != tagOf(o.identity.Complete):
		return strange(o.identity).block(codeInvalidParams)
	}
	if state := r.StateAt(i.log.Now()); state == effect.StateExpired || state == effect.StateVoid {
		return i.lapsed(o.identity, r, state).block(codeInternal)
	}
	return nil
}

// errNoRequest says that a handle is of no request that is open.
var errNoRequest = errors.New("no such request for approval")

// AwaitDecision returns nil when the request for approval that a pause tells of is decided, or is over, and
// ctx's error when ctx ends first. It sees what other processes decide. handle is what the pause told; an
// empty tenant is Options.Tenant.
func (i *Interceptors) AwaitDecision(ctx context.Context, tenant, handle string) error {
	h, ok := parseHandle(handle)
	if !ok {
		return errNoRequest
	}
	_, err := i.log.AwaitDecision(ctx, firstOf(tenant, i.opts.Tenant), h.effect)
	return err
}

// HostDecision is what the user of the agent's own host has said, in a form that the host has shown.
type HostDecision struct {
	Tenant    string // defaults to Options.Tenant
	Principal string // the agent's
	Handle    string // as the pause told it
	Approve   bool
	Reason    string // needed for a denial; defaults to saying who gave none
}

// Decide records what the user of the agent's host has said, as user:NAME where the agent is agent:NAME. It is
// refused where the policy does not let that user decide, and where other arguments were shown than are asked
// about now. A request that others have decided meanwhile is no error: what they said holds.
func (i *Interceptors) Decide(ctx context.Context, d HostDecision) error {
	tenant := firstOf(d.Tenant, i.opts.Tenant)
	h, ok := parseHandle(d.Handle)
	if !ok {
		return errNoRequest
	}
	r, err := h.of(ctx, i.log, tenant)
	switch {
	case err != nil:
		return err
	case r == nil || h.shown != tagOf(r.Approval.Complete):
		return errNoRequest
	}
	reason := strings.TrimSpace(i.opts.Vault.Text(d.Reason)) // that user may repeat what the call keeps secret
	decision := effect.Decision{
		Kind: effect.DecideApprove, By: "user:" + strings.TrimPrefix(strings.TrimPrefix(d.Principal, "agent:"), "user:"), Reason: reason,
		Via: effect.ViaElicitation, Request: r.Approval.ID, Complete: r.Approval.Complete,
	}
	if !d.Approve {
		decision.Kind, decision.Reason = effect.DecideDeny, firstOf(reason, "the user of the agent's host said no and gave no reason")
	}
	_, err = i.log.Decide(ctx, &store.DecideParams{Tenant: tenant, ID: r.ID, Decision: decision})
	if _, late := errors.AsType[*effect.DecidedError](err); late {
		return nil
	}
	return err
}
