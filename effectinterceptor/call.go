package effectinterceptor

import (
	"bytes"
	"encoding/json"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
)

// Keys of _meta and of an invocation's context. What a client sends under prefix is taken off before
// the call goes on, except the three handles that are meant to be sent.
const (
	prefix         = "dev.undolog/"
	keyMeta        = "dev.undolog/idempotency-key"
	runMeta        = "dev.undolog/run"
	occurrenceMeta = "dev.undolog/occurrence"
	effectMeta     = "dev.undolog/effect"
	replayedMeta   = "dev.undolog/replayed"
	exchangeExtra  = "dev.undolog/exchange"
	serverExtra    = "dev.undolog/server" // our own engine's upstream, where it learns the name late
	targetKey      = "idempotencyKey"     // what the target recognises another attempt by; also a client's
	plainKey       = "idempotency-key"
)

// configSchema is what an invoker may configure.
var configSchema = json.RawMessage(`{
	"type": "object",
	"properties": {
		"server": {"type": "string", "minLength": 1, "description": "name of the server that the tools belong to"},
		"run": {"type": "string", "minLength": 1, "description": "run handle of the calls, where they carry none"}
	}
}`)

// noConfig is what stands in for an absent config. It is checked once, when it is registered.
var noConfig = json.RawMessage(`{}`)

type config struct {
	Server string `json:"server"`
	Run    string `json:"run"`
}

// readConfig is a config beside the bytes that it was read from.
type readConfig struct {
	raw    []byte
	config config
}

// configOf reads the invocation's config. An engine sends the same one every time: the last is kept.
func (i *Interceptors) configOf(in *interceptors.Invocation) (config, error) {
	if len(in.Config) <= len(noConfig) {
		return config{}, nil
	}
	if last := i.lastConfig.Load(); last != nil && bytes.Equal(last.raw, in.Config) {
		return last.config, nil
	}
	var cfg config
	if err := jsonv2.Unmarshal(in.Config, &cfg); err != nil {
		return cfg, &effect.InvalidError{Reason: "config is not as its schema says"}
	}
	if len(in.Config) <= maxConfigKept {
		i.lastConfig.Store(&readConfig{bytes.Clone(in.Config), cfg})
	}
	return cfg, nil
}

// maxConfigKept bounds what is kept: an invoker may put into its config what it likes.
const maxConfigKept = 4 << 10

// effectCall is the call as the log sees it.
func (i *Interceptors) effectCall(in *interceptors.Invocation, c *toolCall) (*effect.Call, error) {
	cfg, err := i.configOf(in)
	if err != nil {
		return nil, err
	}
	key, err := keyOf(in, c)
	if err != nil {
		return nil, err
	}
	return &effect.Call{
		Tenant:     i.tenantOf(in),
		Principal:  principalOf(in),
		Server:     serverOf(in, cfg.Server),
		Tool:       c.name,
		Arguments:  c.arguments,
		Key:        key,
		Run:        firstOf(c.run, extra(in, runMeta), cfg.Run),
		Occurrence: c.occurrence,
		ReceivedAt: receivedAt(in),
		Session:    in.Context.SessionID,
		Trace:      in.Context.TraceID,
	}, nil
}

// keyOf is the caller's idempotency key: of the params, or beside them, as HTTP agents send it in a header.
func keyOf(in *interceptors.Invocation, c *toolCall) (string, error) {
	beside := extra(in, keyMeta)
	if c.key != "" && beside != "" && beside != c.key {
		return "", &effect.InvalidError{
			Pointer: "/_meta", Reason: "has another idempotency key in \"" + c.keyAt + "\" than the request has in its header Idempotency-Key: send one",
		}
	}
	return firstOf(c.key, beside), nil
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
	if in.Caller.Local {
		if name := extra(in, serverExtra); name != "" {
			return name
		}
	}
	return "invoker:" + firstOf(in.Caller.Subject, "unnamed")
}

// extra is a string member of the invocation's context, set by the engine and never by its requester.
func extra(in *interceptors.Invocation, name string) string {
	s, _ := text(in.Context.Extra[name])
	return s
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
