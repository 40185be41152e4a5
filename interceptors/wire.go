package interceptors

import "encoding/json"

// ExtensionID names the extension in capabilities.
const ExtensionID = "io.modelcontextprotocol/interceptors"

// The extension's methods.
const (
	MethodList   = "interceptors/list"
	MethodInvoke = "interceptor/invoke"
)

// NotificationListChanged tells a peer of a revision before 2026-07-28 that what interceptors/list answers
// has changed. No text defines it yet; the name is the one that drafts have kept free for it.
const NotificationListChanged = "notifications/interceptors/list_changed"

// Phase is the half of an operation at which an interceptor runs.
type Phase string

const (
	PhaseRequest  Phase = "request"
	PhaseResponse Phase = "response"
)

// Type says whether an interceptor judges or changes a payload.
type Type string

const (
	TypeValidation Type = "validation"
	TypeMutation   Type = "mutation"
)

// Mode says whether an interceptor's verdict or change takes effect.
type Mode string

const (
	ModeActive Mode = "active" // the default, omitted on the wire
	ModeAudit  Mode = "audit"  // recorded only
)

// Severity says how grave a finding is. One that is not known counts as SeverityError.
type Severity string

const (
	SeverityInfo  Severity = "info"
	SeverityWarn  Severity = "warn"
	SeverityError Severity = "error" // stops the operation where the verdict is invalid
)

// Hook says on which events of which phase an interceptor runs.
type Hook struct {
	Events []string `json:"events"`
	Phase  Phase    `json:"phase"`
}

// Descriptor is an interceptor as interceptors/list shows it.
type Descriptor struct {
	Name         string          `json:"name"`
	Version      string          `json:"version,omitempty"`
	Description  string          `json:"description,omitempty"`
	Type         Type            `json:"type"`
	Hooks        []Hook          `json:"hooks"`
	Mode         Mode            `json:"mode,omitempty"` // never "active" on the wire
	FailOpen     bool            `json:"failOpen,omitempty"`
	PriorityHint *Priority       `json:"priorityHint,omitempty"`
	Compat       *Compat         `json:"compat,omitempty"`
	ConfigSchema json.RawMessage `json:"configSchema,omitempty"`
}

// Priority orders mutators: lower runs first. It is a number on the wire when both phases are equal.
type Priority struct {
	Request  int32
	Response int32
}

// Compat bounds the protocol revisions an interceptor works with.
type Compat struct {
	MinProtocol string `json:"minProtocol"`
	MaxProtocol string `json:"maxProtocol,omitempty"`
}

// InvokeParams are the params of interceptor/invoke.
type InvokeParams struct {
	Name      string          `json:"name"`
	Event     string          `json:"event"`
	Phase     Phase           `json:"phase"`
	Payload   json.RawMessage `json:"payload"`
	Config    json.RawMessage `json:"config,omitempty"`
	TimeoutMs int64           `json:"timeoutMs,omitempty"`
	Context   *Context        `json:"context,omitempty"`
	Meta      json.RawMessage `json:"_meta,omitempty"`

	// Caller is who the transport authenticated. It is never read from the wire.
	Caller Caller `json:"-"`
	// Aside asks the target of the operation; nil where the engine cannot. It is of an engine in the same process.
	Aside Aside `json:"-"`
}

// Caller is the authenticated invoker.
type Caller struct {
	Tenant  string // of the bearer token; empty without one
	Subject string // of the bearer token; empty without one
	Local   bool   // invoked in process by our own chain engine: Context.Principal is vouched for
}

// Context tells an interceptor about the operation.
type Context struct {
	Principal *Principal `json:"principal,omitempty"`
	TraceID   string     `json:"traceId,omitempty"`
	SpanID    string     `json:"spanId,omitempty"`
	Timestamp string     `json:"timestamp,omitempty"`
	SessionID string     `json:"sessionId,omitempty"`

	// Extra holds every other member, digit for digit; reverse-DNS keys such as "dev.undolog/exchange".
	Extra map[string]json.RawMessage `json:"-"`
}

// Principal is on whose behalf the operation runs.
type Principal struct {
	Type   string          `json:"type"` // user, service or anonymous
	ID     string          `json:"id,omitempty"`
	Claims json.RawMessage `json:"claims,omitempty"`
}

// Result is a validation or a mutation result, flat as the fixtures have it. Fields that do not belong
// to its Type are not written.
type Result struct {
	Interceptor string          `json:"interceptor"`
	Type        Type            `json:"type"`
	Phase       Phase           `json:"phase"`
	DurationMs  int64           `json:"durationMs,omitempty"`
	Info        json.RawMessage `json:"info,omitempty"` // an object

	Valid       bool         `json:"valid"` // validation
	Severity    Severity     `json:"severity,omitempty"`
	Messages    []Message    `json:"messages,omitempty"`
	Suggestions []Suggestion `json:"suggestions,omitempty"`

	Modified bool            `json:"modified"` // mutation
	Payload  json.RawMessage `json:"payload"`

	// Certain is Change.Certain of a mutator in the same process, with a payload. It is neither written nor
	// read.
	Certain bool `json:"-"`
}

// Message is one finding of a validator.
type Message struct {
	Message  string   `json:"message"`
	Severity Severity `json:"severity"`
	Path     string   `json:"path,omitempty"`
}

// Suggestion is a change that a validator proposes; it is never applied by an engine.
type Suggestion struct {
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
}
