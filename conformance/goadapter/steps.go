package goadapter

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

func (s *session) List(ctx context.Context, event *string) (*conformance.Answer, error) {
	h := s.hosts[0]
	if h.raw != nil {
		params := struct {
			Event *string `json:"event,omitempty"`
		}{event}
		raw, err := json.Marshal(params)
		if err != nil {
			return nil, err
		}
		return flat(h.raw.Call(ctx, interceptors.MethodList, raw))
	}
	filter := ""
	if event != nil {
		filter = *event
	}
	listed, err := h.Server.List(filter)
	if err != nil {
		return refused(err), nil
	}
	return result(struct {
		Interceptors []interceptors.Descriptor `json:"interceptors"`
	}{listed})
}

func (s *session) Invoke(ctx context.Context, params json.RawMessage) (*conformance.Answer, error) {
	h := s.hosts[0]
	if h.raw != nil {
		return flat(h.raw.Call(ctx, interceptors.MethodInvoke, params))
	}
	p, err := interceptors.DecodeInvoke(params)
	if err != nil {
		return refused(err), nil
	}
	res, err := h.Server.Invoke(ctx, p)
	if err != nil {
		return refused(err), nil
	}
	return result(res)
}

// flat takes out what the protocol revision adds to every result: it is no part of the extension's shapes.
func flat(a *conformance.Answer, err error) (*conformance.Answer, error) {
	if err != nil || a.Result == nil {
		return a, err
	}
	a.Result, _, err = splice.Delete(a.Result, func(name string) bool {
		return name == "resultType" || name == "_meta" || name == "ttlMs" || name == "cacheScope"
	})
	return a, err
}

// refused is an error as it stands on the wire.
func refused(err error) *conformance.Answer {
	w := interceptors.WireError(err)
	return &conformance.Answer{Error: &conformance.WireError{Code: w.Code, Message: w.Message, Data: w.Data}}
}

func result(v any) (*conformance.Answer, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return &conformance.Answer{Result: raw}, nil
}

// request is who and what a step's operation belongs to.
func request(step *conformance.Step) *chain.Request {
	r := &chain.Request{Event: *step.Event}
	if c := step.Context; c != nil {
		r.SessionID, r.TraceID, r.SpanID, r.Protocol = c.SessionID, c.TraceID, c.SpanID, c.Protocol
		r.Caller.Tenant, r.FromServer = c.Tenant, c.FromServer
		if c.Principal != "" {
			r.Principal = &interceptors.Principal{Type: "user", ID: c.Principal}
		}
	}
	return r
}

func (s *session) Apply(ctx context.Context, step *conformance.Step) (*conformance.Decision, error) {
	out := s.chain.Execute(ctx, &chain.PhaseParams{
		Event: *step.Event, Phase: interceptors.Phase(step.Phase), Payload: step.Payload, Request: request(step),
	})
	d := &conformance.Decision{Decision: "allow", FinalPayload: out.Payload}
	if out.Status != chain.StatusSuccess {
		d.Decision = "deny"
	}
	d.Summary = fmt.Appendf(nil, `{"errors":%d,"warnings":%d,"infos":%d}`, out.Summary.Errors, out.Summary.Warnings, out.Summary.Infos)
	d.Recorded, d.Failed = []string{}, []string{}
	for i := range out.Records {
		r := &out.Records[i]
		d.Recorded = append(d.Recorded, r.Interceptor)
		if r.Failure != nil {
			d.Failed = append(d.Failed, r.Interceptor)
		}
	}
	return d, nil
}

func (s *session) Exchange(ctx context.Context, step *conformance.Step) (*conformance.Exchanged, error) {
	r := request(step)
	r.Params = step.Payload
	x := new(conformance.Exchanged)
	reply := s.chain.Do(ctx, r, func(_ context.Context, params json.RawMessage) chain.Answer {
		x.Received = params
		return chain.Answer{Kind: chain.Answered, Result: step.Upstream.Result, Error: step.Upstream.Error}
	})
	reply.Delivered(true)
	if x.Result = reply.Result; reply.Error != nil {
		x.Error = new(conformance.WireError)
		if err := json.Unmarshal(reply.Error, x.Error); err != nil {
			return nil, fmt.Errorf("read reply: %w", err)
		}
	}
	return x, nil
}

func (s *session) Request(ctx context.Context, r *conformance.Request) (*conformance.Answer, error) {
	h := s.hosts[0]
	if h.web != nil {
		return h.web.Request(ctx, r)
	}
	fresh, err := h.rawPipe()
	if err != nil {
		return nil, err
	}
	return fresh.Request(ctx, r)
}
