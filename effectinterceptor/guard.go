package effectinterceptor

import (
	"context"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/jcs"
)

// guardRequest refuses early what the claim would refuse as malformed, so that no other interceptor
// works on it. It decides nothing else: what is allowed is decided where it is enforced, in the claim.
// In process and without a policy it looks only for what two interceptors could read in two ways.
func (i *Interceptors) guardRequest(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
	policy := i.policy.Load()
	if in.Caller.Local && policy == nil && jcs.Valid(in.Payload) {
		return interceptors.Allow(), nil
	}
	err := i.checkCall(ctx, in, policy)
	why := invalidCall(err)
	switch {
	case why == nil:
		return interceptors.Allow(), err
	case in.Caller.Local:
		return nil, why.block(codeInvalidParams)
	}
	return &interceptors.Verdict{Severity: interceptors.SeverityError, Messages: why.messages(), Info: why.wrapped()}, nil
}

// checkCall returns what is wrong with the call itself.
func (i *Interceptors) checkCall(ctx context.Context, in *interceptors.Invocation, policy *effect.Policy) error {
	c, err := parseCall(in.Payload)
	if err != nil {
		return err
	}
	call, err := i.effectCall(in, c)
	if err != nil || policy == nil {
		return err
	}
	j, err := i.judge(ctx, in, policy, call)
	switch {
	case err == nil:
		i.remember(in, j)
	case invalidCall(err) == nil: // the log did not answer: the claim will tell
		if ctx.Err() == nil {
			i.rememberSilence(in, policy, err)
		}
		return nil
	}
	return err
}

// guardResponse settles where the engine validates a response before it mutates it, so that a verdict of
// another validator cannot lose the outcome. It goes by what names one request for certain: the same
// response is matched once more by undolog/effect, and by then another call of the session may be open.
func (i *Interceptors) guardResponse(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
	ev := evidenceOf(in)
	if o := i.open.certain(&ev); o != nil && !ev.echo.replayed && !o.replayed {
		i.settleResult(ctx, o, in.Payload)
	}
	return interceptors.Allow(), nil
}
