package effectinterceptor

import (
	"context"
	"errors"
	"hash/maphash"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
)

// judged is what is known of a call before it is claimed: what holds for it, what of it may be kept, and what
// its tool's schema has against it. undolog/guard leaves it for undolog/effect of the same exchange.
type judged struct {
	payload  uint64 // hash of the params
	policy   *effect.Policy
	contract *effect.Contract
	schemas  *toolSchemas // nil: nothing is checked
	wrong    error        // a *schemaError of a call that runs all the same, in shadow

	waited time.Duration // for a log that did not answer
	silent error         // it did not say what holds for the call: nothing else is known

	definition  effect.Digest
	annotations *effect.Annotations
	recorded    []byte
	secrets     *effect.Secrets
}

var payloadSeed = maphash.MakeSeed()

// judge finds out about a call. An *effect.InvalidError and a *schemaError are of the call itself; after any other error
// it is not known what holds for it.
func (i *Interceptors) judge(ctx context.Context, in *interceptors.Invocation, policy *effect.Policy, call *effect.Call) (*judged, error) {
	exchange := exchangeKey(in)
	hash := maphash.Bytes(payloadSeed, in.Payload)
	if exchange.kind == ownExchange {
		if j, ok := i.judged.take(exchange.id); ok && j.payload == hash && j.policy == policy {
			if j.silent != nil {
				return nil, j.silent
			}
			j.tell(call)
			return j, nil
		}
	}
	contract, waited, err := i.contractAfter(ctx, policy, call)
	if err != nil {
		return nil, err
	}
	i.keep(call, contract)
	j := &judged{
		payload: hash, policy: policy, contract: contract, waited: waited,
		definition: call.Definition, annotations: call.Annotations, recorded: call.Recorded, secrets: call.Secrets,
	}
	if contract.Schemas {
		j.schemas = i.schemasOf(ctx, call)
		if j.wrong = j.schemas.checkArguments(call.Arguments, contract.Inject); j.wrong != nil && !contract.Shadow {
			return nil, j.wrong
		}
	}
	return j, nil
}

// tell gives an equal call what was found out.
func (j *judged) tell(call *effect.Call) {
	call.Definition, call.Annotations, call.Recorded, call.Secrets = j.definition, j.annotations, j.recorded, j.secrets
}

// remember leaves j for the claim of the same exchange. Another engine's guard may be anybody's.
func (i *Interceptors) remember(in *interceptors.Invocation, j *judged) {
	if exchange := exchangeKey(in); exchange.kind == ownExchange {
		i.judged.add(exchange.id, j)
	}
}

// rememberSilence has the claim of the same exchange not wait once more for a log that did not answer.
func (i *Interceptors) rememberSilence(in *interceptors.Invocation, policy *effect.Policy, err error) {
	i.remember(in, &judged{payload: maphash.Bytes(payloadSeed, in.Payload), policy: policy, silent: err})
}

// schemasOf returns the schemas of the call's tool; nil when its definition is not known.
func (i *Interceptors) schemasOf(ctx context.Context, call *effect.Call) *toolSchemas {
	if call.Definition.IsZero() {
		return nil
	}
	known, err := i.catalog.find(ctx, serverKey{call.Tenant, call.Server}, call.Tool)
	if err != nil || known.digest != call.Definition {
		return nil
	}
	return i.schemas.of(known.digest, known.definition)
}

// noteWrong notes what would have stopped a call that runs in shadow.
func (i *Interceptors) noteWrong(o *open, wrong error) {
	if bad, ok := errors.AsType[*schemaError](wrong); ok {
		i.noteDetail(o, effect.EventShadow, map[string]string{"action": outcomeInvalid, "reason": wrongArguments(bad).Reason})
	}
}
