package effectinterceptor

import (
	"bytes"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/splice"
)

// keep says of a call what may be kept of it. What is sent, and what identifies it, is the call itself.
func (i *Interceptors) keep(call *effect.Call, c *effect.Contract) {
	if len(c.Redact) == 0 {
		return
	}
	call.Recorded, call.Secrets = effect.NewRedaction(c.Redact).Keep(call.Arguments, nil)
	i.opts.Vault.add(call.Secrets)
}

// redacted is an outcome as it may be kept.
func (i *Interceptors) redacted(o *open, out effect.Outcome) effect.Outcome {
	secrets := o.call.Secrets
	if o.redacts() || secrets != nil {
		if state, ok := splice.Text(splice.Get(out.Answer.Body, "requestState")); ok && state == out.Continuation {
			out.Continuation = o.round(state)
		}
		out.Answer.Body, secrets = effect.NewRedaction(o.contract.RedactResult).Keep(out.Answer.Body, secrets)
		i.opts.Vault.add(secrets)
	}
	out.Reason = i.opts.Vault.Text(secrets.Text(out.Reason))
	return out
}

// redacts reports whether something of the call, or of its answer, is not kept.
func (o *open) redacts() bool { return len(o.contract.Redact)+len(o.contract.RedactResult) > 0 }

// round is what is kept of a requestState, to know it by when it comes back: targets put into it what they like.
func (o *open) round(state string) string {
	if state == "" || state == roundWithoutState || !o.redacts() {
		return state
	}
	digest, err := effect.DigestOf(splice.Quote(state))
	if err != nil {
		return state // a string is canonical JSON
	}
	return digest.String()
}

// isRedacted reports whether values were left out of a recorded answer.
func (o *open) isRedacted(r *effect.Record) bool {
	return o.redacts() && bytes.Contains(r.Answer.Body, []byte(effect.Redacted))
}
