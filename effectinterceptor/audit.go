package effectinterceptor

import (
	"context"
	"encoding/json"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
)

// auditOperation notes one event per governed operation that is no tool call, in its request phase.
func (i *Interceptors) auditOperation(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
	if in.Event == "tools/call" || in.Phase != interceptors.PhaseRequest {
		return interceptors.Allow(), nil
	}
	members := map[string]string{"event": in.Event}
	if in.Context.TraceID != "" {
		members["trace"] = in.Context.TraceID // that of _meta.traceparent, where the two differ
	}
	i.log.Note(effect.Event{
		At: i.opts.Now(), Tenant: i.tenantOf(in), Kind: effect.EventOperation, Principal: principalOf(in),
		Detail: detail(members),
	})
	return interceptors.Allow(), nil
}

// Stop is an operation that an interceptor stopped, ours or another's.
type Stop struct {
	Tenant    string // defaults to Options.Tenant
	Principal string
	Event     string // the operation, such as tools/call
	Exchange  string // by whose effect, if it has one
	Server    string // that it was for
	Tool      string // of a tools/call
	By        string // the interceptor
	Reason    string // MUST NOT hold payloads; secrets that are known are taken out of it
}

// Stopped records a stop, as an event, a moment later; of many equal ones within a minute their number. It is for
// an engine's own report.
func (i *Interceptors) Stopped(s Stop) {
	ev := effect.Event{
		At: i.opts.Now(), Tenant: firstOf(s.Tenant, i.opts.Tenant), Kind: effect.EventStopped,
		Principal: s.Principal, Server: s.Server, Tool: shorten(s.Tool),
		Detail: detail(map[string]string{"event": s.Event, "by": s.By, "reason": i.opts.Vault.Text(s.Reason)}),
	}
	switch o := i.open.only(localExchange(s.Exchange)); {
	case o != nil:
		ev.Effect = o.effectID
	case s.Event == "tools/call" && s.By != GuardName && s.By != EffectName:
		i.counts.refuse(byInterceptor)
	}
	i.refused.add(ev, string(ev.Detail))
}

func detail(members map[string]string) json.RawMessage {
	raw, err := json.Marshal(members)
	if err != nil {
		panic(err) // strings
	}
	return raw
}
