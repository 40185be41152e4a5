package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Adapter binds the behaviors of fixtures to an implementation.
type Adapter interface {
	// Name says in reports what is tried.
	Name() string
	// Has reports whether the adapter can do what a feature stands for.
	Has(feature Feature) bool
	// CreateSession registers the fixture's interceptors with a fresh host and engine: no two sessions share
	// state. An error that is not ErrUnsupported means that the implementation refused them.
	CreateSession(ctx context.Context, f *Fixture) (Session, error)
}

// ErrUnsupported is returned by adapters for what they cannot try; the fixture is then skipped.
var ErrUnsupported = errors.New("not supported by the adapter")

// Session is one set of interceptors with a host and an engine. Its methods are called one at a time. An
// error means that the step could not be carried out, which fails it.
type Session interface {
	// List is interceptors/list with an event filter, nil for none.
	List(ctx context.Context, event *string) (*Answer, error)
	// Invoke is interceptor/invoke with these params, sent as they stand.
	Invoke(ctx context.Context, params json.RawMessage) (*Answer, error)
	// Apply takes one phase of an operation through the engine.
	Apply(ctx context.Context, step *Step) (*Decision, error)
	Close() error
}

// Exchanger is a Session with FeatureExchange.
type Exchanger interface {
	Exchange(ctx context.Context, step *Step) (*Exchanged, error)
}

// Requester is a Session with FeatureRequest.
type Requester interface {
	Request(ctx context.Context, r *Request) (*Answer, error)
}

// Changer is a Session with FeatureChange.
type Changer interface {
	// Change registers more interceptors with the host, and lets pass the time for which an engine may
	// believe what it knows of the host.
	Change(ctx context.Context, more []Interceptor) error
}

// Alerter is a Session with FeatureAlerts.
type Alerter interface {
	// Alerts returns what the operator was told since the session began, as soon as every text is in it; without
	// them, what there is after a while.
	Alerts(ctx context.Context, texts []string) string
}

// Counter is a Session with FeatureCalls.
type Counter interface {
	// Calls returns what each interceptor was invoked with so far, in order.
	Calls() map[string][]json.RawMessage
}

// Answer is what came over the wire, with exactly one of Result and Error, or neither where the answer was
// no JSON-RPC at all.
type Answer struct {
	Result json.RawMessage
	Error  *WireError
	Status int             // of HTTP, else 0
	Raw    json.RawMessage // all that was received, for Forbids; may be nil
}

// WireError is a JSON-RPC error.
type WireError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Decision is what one phase came to.
type Decision struct {
	Decision     string          // allow or deny
	FinalPayload json.RawMessage // nil when denied
	Summary      json.RawMessage // {"errors","warnings","infos"}, with FeatureRecords
	Recorded     []string        // with FeatureRecords
	Failed       []string        // with FeatureRecords
	Visible      string          // what the requester is told of a denial; may be empty
}

// Exchanged is what one operation came to.
type Exchanged struct {
	Answer
	Received json.RawMessage   // params that reached the upstream, nil when none did
	Notes    []json.RawMessage // params of the progress notifications that the agent got
	Notified []json.RawMessage // other notifications that the agent got, {method, params} each
	Asked    json.RawMessage   // params of the question that the agent got, nil without one
	Told     json.RawMessage   // what the upstream got for an answer to its question
}

// timed is a step's outcome with how long it took.
type timed struct {
	answer   *Answer
	decision *Decision
	exchange *Exchanged // of an exchange step, else nil
	elapsed  time.Duration
	calls    map[string][]json.RawMessage // made by this step
	alerts   string                       // where the step expects any
}
