package effectinterceptor

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
	"github.com/undolog/undolog/store"
)

// openKey is one thing by which a response finds its request; zero: nothing. All evidence is scoped to the
// invoker, so that none names another's.
type openKey struct {
	kind    keyKind
	invoker string // empty for our own engine's exchanges
	id      string
}

type keyKind byte

const (
	ownExchange keyKind = 1 + iota
	exchangeID
	effectID
	spanID
	sessionID
)

// evidence is what a response says about the request that it answers.
type evidence struct {
	exchange openKey
	effect   openKey // of the echo
	span     openKey
	session  openKey
	local    bool
	echo     echo
}

// echo is our mark in the _meta of a result: left there by a target that hands back what it was sent, or
// by a replay of ours.
type echo struct {
	id       string
	attempt  int // 0: not said
	replayed bool
}

func evidenceOf(in *interceptors.Invocation) evidence {
	ev := evidence{exchange: exchangeKey(in), local: in.Caller.Local, echo: echoOf(in.Payload)}
	if ev.local && ev.exchange != (openKey{}) { // our own engine knows
		return ev
	}
	ev.effect = effectKey(in, ev.echo.id)
	ev.span = spanKey(in)
	ev.session = sessionKey(in)
	return ev
}

// exchangeKey is the engine's correlation id.
func exchangeKey(in *interceptors.Invocation) openKey {
	id := extra(in, exchangeExtra)
	if in.Caller.Local {
		return localExchange(id)
	}
	return scopedKey(exchangeID, in, id)
}

func localExchange(id string) openKey {
	if id == "" {
		return openKey{}
	}
	return openKey{kind: ownExchange, id: id}
}

func effectKey(in *interceptors.Invocation, id string) openKey { return scopedKey(effectID, in, id) }

func spanKey(in *interceptors.Invocation) openKey {
	if in.Context.TraceID == "" || in.Context.SpanID == "" {
		return openKey{}
	}
	return scopedKey(spanID, in, in.Context.TraceID+"\x00"+in.Context.SpanID)
}

func sessionKey(in *interceptors.Invocation) openKey {
	return scopedKey(sessionID, in, in.Context.SessionID)
}

func scopedKey(kind keyKind, in *interceptors.Invocation, id string) openKey {
	if id == "" {
		return openKey{}
	}
	return openKey{kind: kind, invoker: invokerOf(in), id: id}
}

func invokerOf(in *interceptors.Invocation) string {
	return in.Caller.Tenant + "\x00" + in.Caller.Subject
}

// match finds the request that a response answers: by exchange id, by the effect id that the target
// echoed, by trace and span if unique, by session if its only request. Otherwise it does not guess.
// expected says that the response is no news although it answers no open request.
func (i *Interceptors) match(ctx context.Context, in *interceptors.Invocation, ev *evidence) (o *open, expected bool) {
	if o := i.open.only(ev.exchange); o != nil || ev.local && ev.exchange != (openKey{}) {
		return o, ev.local
	}
	if ev.echo.id != "" {
		if o, known := i.echoed(ctx, in, ev); known {
			return o, o == nil && ev.echo.replayed
		}
	}
	if ev.exchange != (openKey{}) { // begun by nobody that we know of
		return nil, false
	}
	if o := i.open.only(ev.span); o != nil {
		return o, false
	}
	return i.open.alone(ev.session), false
}

// echoed finds what the echoed effect id names. known is false when the id is none of ours: another
// log's, of a target that stands behind one.
func (i *Interceptors) echoed(ctx context.Context, in *interceptors.Invocation, ev *evidence) (o *open, known bool) {
	if o := i.open.only(ev.effect); o != nil {
		if o.call.Principal != principalOf(in) { // another's effect, whoever knows its id
			return nil, true
		}
		if ev.echo.replayed { // an earlier answer of an effect that is under way again
			return nil, true
		}
		return i.sameAttempt(o, ev.echo.attempt), true
	}
	shown, err := i.log.Show(ctx, i.tenantOf(in), ev.echo.id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, false
	case err != nil, ev.echo.replayed:
		return nil, true
	}
	return i.sameAttempt(i.reopen(ctx, in, shown.Record), ev.echo.attempt), true
}

// sameAttempt is o when the echo is of its attempt. An answer of an earlier one is late: it is kept as an
// event and settles nothing.
func (i *Interceptors) sameAttempt(o *open, attempt int) *open {
	if o == nil || o.claim == nil || attempt == 0 || attempt == o.claim.Attempt {
		return o
	}
	i.refused.add(i.detailed(o, effect.EventLate, map[string]string{"attempt": strconv.Itoa(attempt)}), "")
	return nil
}

// reopen makes a claim that another process of ours made an open request again; nil when it is not this
// caller's or not claimed.
func (i *Interceptors) reopen(ctx context.Context, in *interceptors.Invocation, r *effect.Record) *open {
	cfg, err := i.configOf(in)
	if err != nil || r.Principal != principalOf(in) || r.Server != serverOf(in, cfg.Server) {
		return nil
	}
	if r.State != effect.StateClaimed && r.State != effect.StateInDoubt {
		return nil
	}
	call := callOf(r)
	contract, err := i.contractOf(ctx, i.policy.Load(), call)
	if err != nil {
		return nil
	}
	return &open{
		call: call, contract: contract, effectID: r.ID, started: r.CreatedAt, edited: editedNote(r),
		identity: &effect.Identity{Rule: r.Rule, Signature: r.Signature},
		claim:    &effect.Claim{Effect: r.ID, Tenant: r.Tenant, Attempt: r.Attempt, Ordinal: r.Ordinal, Owner: r.Owner},
	}
}

// noteAltered tells of a target that was sent another effect than the one claimed: somebody changed the
// payload after us.
func (i *Interceptors) noteAltered(o *open, e *echo) {
	if o.claim == nil || e.id == "" || e.replayed {
		return
	}
	if e.id == o.claim.Effect && (e.attempt == 0 || e.attempt == o.claim.Attempt) {
		return
	}
	i.refused.add(i.detailed(o, effect.EventAltered, map[string]string{"echoedEffect": shorten(e.id), "echoedAttempt": strconv.Itoa(e.attempt)}), "")
}

// echoOf reads our mark, which most results do not have: they are not read.
func echoOf(result json.RawMessage) echo {
	if !mayHaveOurs(result) {
		return echo{}
	}
	return readEcho(result)
}

func readEcho(result json.RawMessage) (e echo) {
	meta := splice.Get(result, "_meta")
	e.id, _ = text(splice.Get(meta, effectMeta, "id"))
	if raw := splice.Get(meta, effectMeta, "attempt"); raw == nil || jsonv2.Unmarshal(raw, &e.attempt) != nil {
		e.attempt = 0
	}
	e.replayed = string(splice.Get(meta, replayedMeta)) == "true"
	return e
}

// mayHaveOurs reports whether a member under our prefix can be in a text.
func mayHaveOurs(json []byte) bool { return splice.MayHold(json, prefix) }

// stripResult takes what looks like our mark off a fresh result.
func stripResult(result json.RawMessage) (json.RawMessage, error) {
	if !mayHaveOurs(result) {
		return result, nil
	}
	meta := splice.Get(result, "_meta")
	if splice.Kind(meta) != '{' {
		return result, nil
	}
	meta, changed, err := splice.Delete(meta, func(name string) bool { return name == effectMeta || name == replayedMeta })
	if err != nil || !changed {
		return result, err
	}
	return splice.Set(result, meta, "_meta")
}
