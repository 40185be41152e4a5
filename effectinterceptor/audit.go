package effectinterceptor

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
)

// auditOperation notes one event per governed operation that is no tool call, in its request phase.
func (i *Interceptors) auditOperation(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
	if in.Event != "tools/call" && in.Phase == interceptors.PhaseRequest {
		i.log.Note(effect.Event{
			At: i.opts.Now(), Tenant: i.tenantOf(in), Kind: effect.EventOperation, Principal: principalOf(in),
			Detail: detail(map[string]string{"event": in.Event}),
		})
	}
	return interceptors.Allow(), nil
}

// Stopped records that an interceptor, one of ours or another's, stopped an operation. It is for an
// engine's own report; reason MUST NOT hold payloads.
func (i *Interceptors) Stopped(ctx context.Context, tenant, principal, event, by, reason string) {
	i.opts.Logger.InfoContext(ctx, "operation stopped", slog.String("event", event), slog.String("by", by), slog.String("reason", reason))
	i.log.Note(effect.Event{
		At: i.opts.Now(), Tenant: firstOf(tenant, i.opts.Tenant), Kind: effect.EventStopped, Principal: principal,
		Detail: detail(map[string]string{"event": event, "by": by, "reason": reason}),
	})
}

func detail(members map[string]string) json.RawMessage {
	raw, err := json.Marshal(members)
	if err != nil {
		panic(err) // strings
	}
	return raw
}
