package effectinterceptor

import (
	"context"
	"errors"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
)

// guardRequest refuses early what the claim would refuse as malformed, so that no other interceptor
// works on it. It decides nothing else: what is allowed is decided where it is enforced, in the claim.
func (i *Interceptors) guardRequest(in *interceptors.Invocation) (*interceptors.Verdict, error) {
	err := i.checkCall(in)
	var bad *effect.InvalidError
	if !errors.As(err, &bad) {
		return interceptors.Allow(), err
	}
	why := invalid(bad)
	if in.Caller.Local {
		return nil, why.block(codeInvalidParams)
	}
	return &interceptors.Verdict{
		Severity: interceptors.SeverityError,
		Messages: []interceptors.Message{{Message: why.Reason, Severity: interceptors.SeverityError, Path: "params" + bad.Pointer}},
		Info:     why.wrapped(),
	}, nil
}

func (i *Interceptors) checkCall(in *interceptors.Invocation) error {
	c, err := parseCall(in.Payload)
	if err != nil {
		return err
	}
	if _, err := i.effectCall(in, c); err != nil {
		return err
	}
	switch c.Arguments.Kind() {
	case '{', 0:
		return nil
	}
	return &effect.InvalidError{Pointer: "/arguments", Reason: "must be an object"}
}

// guardResponse settles where the engine validates a response before it mutates it, so that a verdict of
// another validator cannot lose the outcome.
func (i *Interceptors) guardResponse(ctx context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
	if o := i.open.match(in, echoedEffect(in.Payload)); o != nil && !o.replayed {
		i.settle(ctx, o, classify(in.Payload, nil))
	}
	return interceptors.Allow(), nil
}
