package effectinterceptor

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
)

// Keys of _meta and of an invocation's context. What a client sends under prefix is taken off before
// the call goes on, except the three that are meant to be sent.
const (
	prefix        = "dev.undolog/"
	keyMeta       = "dev.undolog/idempotency-key"
	runMeta       = "dev.undolog/run"
	occurrence    = "dev.undolog/occurrence"
	effectMeta    = "dev.undolog/effect"
	replayedMeta  = "dev.undolog/replayed"
	exchangeExtra = "dev.undolog/exchange"
	serverExtra   = "dev.undolog/server" // our own engine's upstream, where it learns the name late
	targetKey     = "idempotencyKey"
)

// keyMetas are the members of _meta that carry an idempotency key, first one wins.
var keyMetas = []string{keyMeta, "idempotencyKey", "idempotency-key"}

// configSchema is what an invoker may configure.
var configSchema = json.RawMessage(`{
	"type": "object",
	"properties": {
		"server": {"type": "string", "minLength": 1, "description": "name of the server that the tools belong to"},
		"run": {"type": "string", "minLength": 1, "description": "run handle of the calls, where they carry none"}
	}
}`)

type config struct {
	Server string `json:"server"`
	Run    string `json:"run"`
}

// toolCall is what the params of a tools/call hold that concerns identity.
type toolCall struct {
	Name           string         `json:"name"`
	Arguments      jsontext.Value `json:"arguments"`
	Meta           jsontext.Value `json:"_meta"`
	RequestState   *string        `json:"requestState"`
	InputResponses jsontext.Value `json:"inputResponses"`
}

// roundWithoutState continues an attempt whose target gave no requestState to go on with.
const roundWithoutState = "inputResponses"

// parseCall reads the params of a tools/call. A duplicate member anywhere is refused: two readers of it
// could take different values.
func parseCall(payload json.RawMessage) (*toolCall, error) {
	var c toolCall
	if err := jsonv2.Unmarshal(payload, &c); err != nil {
		return nil, invalidParams(err)
	}
	if c.Name == "" {
		return nil, &effect.InvalidError{Pointer: "/name", Reason: "is missing; name the tool to call"}
	}
	return &c, nil
}

func invalidParams(err error) error {
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		return &effect.InvalidError{Pointer: string(syntactic.JSONPointer), Reason: syntactic.Err.Error()}
	}
	var semantic *jsonv2.SemanticError
	if errors.As(err, &semantic) {
		return &effect.InvalidError{Pointer: string(semantic.JSONPointer), Reason: "has the wrong type"}
	}
	return &effect.InvalidError{Reason: "is not a JSON object"}
}

// continuation is by what the call goes on with a waiting attempt, empty when it does not.
func (c *toolCall) continuation() string {
	switch {
	case c.RequestState != nil:
		return *c.RequestState
	case len(c.InputResponses) > 0:
		return roundWithoutState
	}
	return ""
}

// effectCall is the call as the log sees it.
func (i *Interceptors) effectCall(in *interceptors.Invocation, c *toolCall) (*effect.Call, error) {
	var cfg config
	if len(in.Config) > 0 {
		if err := jsonv2.Unmarshal(in.Config, &cfg); err != nil {
			return nil, &effect.InvalidError{Reason: "config is not as its schema says"}
		}
	}
	meta, err := metaStrings(c.Meta, append([]string{runMeta, occurrence}, keyMetas...))
	if err != nil {
		return nil, err
	}
	call := &effect.Call{
		Tenant:     i.tenantOf(in),
		Principal:  principalOf(in),
		Server:     serverOf(in, cfg.Server),
		Tool:       c.Name,
		Arguments:  json.RawMessage(c.Arguments),
		Run:        firstOf(meta[runMeta], extra(in, runMeta), cfg.Run),
		Occurrence: meta[occurrence],
		ReceivedAt: receivedAt(in),
		Session:    in.Context.SessionID,
		Trace:      in.Context.TraceID,
	}
	for _, name := range keyMetas {
		call.Key = firstOf(call.Key, meta[name])
	}
	call.Key = firstOf(call.Key, extra(in, keyMeta))
	return call, nil
}

// receivedAt is when our own engine received the call. A foreign invoker's word for it decides nothing.
func receivedAt(in *interceptors.Invocation) time.Time {
	if !in.Caller.Local {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, in.Context.Timestamp)
	if err != nil {
		return time.Time{}
	}
	return at
}

// metaStrings reads members of _meta that must be strings where they are present.
func metaStrings(meta jsontext.Value, names []string) (map[string]string, error) {
	if len(meta) == 0 {
		return nil, nil
	}
	var all map[string]jsontext.Value
	if err := jsonv2.Unmarshal(meta, &all); err != nil {
		return nil, &effect.InvalidError{Pointer: "/_meta", Reason: "is not an object"}
	}
	got := make(map[string]string, len(names))
	for _, name := range names {
		raw, ok := all[name]
		if !ok {
			continue
		}
		var s string
		if err := jsonv2.Unmarshal(raw, &s); err != nil || raw.Kind() != '"' || s == "" {
			return nil, &effect.InvalidError{Pointer: "/_meta/" + escapePointer(name), Reason: "must be a string that is not empty"}
		}
		got[name] = s
	}
	return got, nil
}

func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

func (i *Interceptors) tenantOf(in *interceptors.Invocation) string {
	return firstOf(in.Caller.Tenant, i.opts.Tenant)
}

// principalOf is who calls: whom our own engine or the invoker's context names, else its session, else
// nobody. An anonymous principal is nobody.
func principalOf(in *interceptors.Invocation) string {
	if p := in.Context.Principal; p != nil && p.Type != "anonymous" && p.ID != "" {
		return p.ID
	}
	if in.Caller.Local || in.Context.SessionID == "" {
		return ""
	}
	return "session:" + in.Context.SessionID
}

// serverOf is the server that the tool belongs to: as configured, else one per invoker.
func serverOf(in *interceptors.Invocation, configured string) string {
	if configured != "" {
		return configured
	}
	if name := extra(in, serverExtra); in.Caller.Local && name != "" {
		return name
	}
	return "invoker:" + firstOf(in.Caller.Subject, "unnamed")
}

// extra is a string member of the invocation's context, set by the engine and never by its requester.
func extra(in *interceptors.Invocation, name string) string {
	var s string
	if raw, ok := in.Context.Extra[name]; ok && jsonv2.Unmarshal(raw, &s) == nil {
		return s
	}
	return ""
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
