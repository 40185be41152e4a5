package effectinterceptor

import (
	"context"
	"errors"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/jcs"
)

// guardRequest refuses early what the claim would refuse as malformed, so that no other interceptor
// works on it. It decides nothing else: what is allowed is decided where it is enforced, in the claim.
// In process it looks only for what two interceptors could read in two ways.
func (i *Interceptors) guardRequest(in *interceptors.Invocation) (*interceptors.Verdict, error) {
	if in.Caller.Local && jcs.Valid(in.Payload) {
		return interceptors.Allow(), nil
	}
	var bad *effect.InvalidError
	if err := i.checkCall(in); !errors.As(err, &bad) {
		return interceptors.Allow(), err
	}
	why := invalid(bad)
	if in.Caller.Local {
		return nil, why.block(codeInvalidParams)
	}
	return &interceptors.Verdict{
		Severity: interceptors.SeverityError,
		Messages: []interceptors.Message{{Message: why.Reason, Severity: interceptors.SeverityError, Path: why.pointer()}},
		Info:     why.wrapped(),
	}, nil
}

func (i *Interceptors) checkCall(in *interceptors.Invocation) error {
	c, err := parseCall(in.Payload)
	if err != nil {
		return err
	}
	_, err = i.effectCall(in, c)
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
