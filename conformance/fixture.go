package conformance

import (
	"encoding/json"
	"slices"
	"strings"
)

// Fixture is one case: interceptors, steps against one session of them, and expectations. Fields after
// Volatile are extensions of this package.
type Fixture struct {
	ID           string        `json:"id"`
	Kind         string        `json:"kind"` // protocol or behavior, in our own cases also wire
	Requirement  string        `json:"requirement"`
	Description  string        `json:"description"`
	Interceptors []Interceptor `json:"interceptors"`
	Steps        []Step        `json:"steps"`
	Volatile     []string      `json:"volatile"` // members taken out of what is compared, at any depth

	// Posture is the side of the trust boundary that apply steps stand on. Defaults to client.
	Posture Posture `json:"posture,omitempty"`
	// Host configures the host of the interceptors.
	Host HostOptions `json:"host,omitzero"`
	// Policy is what the engine's operator says.
	Policy Policy `json:"policy,omitzero"`
	// Rejected says that the interceptors cannot be registered together: creating the session must fail.
	Rejected bool `json:"rejected,omitempty"`
}

// Posture is the side of the trust boundary that an engine stands on.
type Posture string

const (
	PostureClient Posture = "client" // request: mutate, validate; response: validate, mutate
	PostureServer Posture = "server" // request: validate, mutate; response: mutate, validate
	PostureAny    Posture = "any"    // what is expected holds on both sides
)

// Interceptor is one interceptor to register. Fields after FailOpen are extensions.
type Interceptor struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"` // validation or mutation
	Behavior string   `json:"behavior"`
	Events   []string `json:"events,omitempty"`
	Phases   string   `json:"phases,omitempty"` // request, response or both
	Mode     string   `json:"mode,omitempty"`   // active or audit; enforce is read as active
	FailOpen bool     `json:"failOpen,omitempty"`

	Args          Args            `json:"args,omitzero"` // of the behavior
	Hooks         *[]Hook         `json:"hooks,omitempty"`
	PriorityHint  json.RawMessage `json:"priorityHint,omitempty"`
	Compat        json.RawMessage `json:"compat,omitempty"`
	ConfigSchema  json.RawMessage `json:"configSchema,omitempty"`
	DefaultConfig json.RawMessage `json:"defaultConfig,omitempty"`
	Host          string          `json:"host,omitempty"` // name of its host; all without one share a host
}

// Args are the arguments of a behavior; each behavior reads its own.
type Args struct {
	MS    int64  `json:"ms,omitempty"`
	Tag   string `json:"tag,omitempty"`
	Key   string `json:"key,omitempty"`
	Field string `json:"field,omitempty"`
}

// Hook says on which events of which phase an interceptor runs.
type Hook struct {
	Events []string `json:"events"`
	Phase  string   `json:"phase"`
}

// Hooked returns the interceptor's hooks: Hooks, else those that Events and Phases stand for.
func (i *Interceptor) Hooked() []Hook {
	if i.Hooks != nil {
		return *i.Hooks
	}
	if i.Phases != "both" {
		return []Hook{{i.Events, i.Phases}}
	}
	return []Hook{{i.Events, "request"}, {i.Events, "response"}}
}

// HostOptions configure the host of a session.
type HostOptions struct {
	LegacyEnvelope    bool     `json:"legacyEnvelope,omitempty"`
	LegacyTimeoutCode bool     `json:"legacyTimeoutCode,omitempty"`
	TTLMs             int64    `json:"ttlMs,omitempty"` // how long it says that its list may be believed
	Down              []string `json:"down,omitempty"`  // names of hosts that cannot be reached
}

// Policy is what the operator of an engine says about interceptors.
type Policy struct {
	Overrides  map[string]Override `json:"overrides,omitempty"`
	Required   map[string]string   `json:"required,omitempty"` // name to type
	DeadlineMs int64               `json:"deadlineMs,omitempty"`
	Strict     bool                `json:"strict,omitempty"` // results must name their interceptor, type and phase
	// MaxPayload is the size in bytes above which a payload is not shown to interceptors: they have failed then.
	MaxPayload  int64 `json:"maxPayload,omitempty"`
	ScrubErrors bool  `json:"scrubErrors,omitempty"` // errors of the target are passed on without their text
}

// Override replaces parts of what an interceptor's author declared.
type Override struct {
	Mode         string          `json:"mode,omitempty"`
	FailOpen     *bool           `json:"failOpen,omitempty"`
	PriorityHint json.RawMessage `json:"priorityHint,omitempty"`
	TimeoutMs    int64           `json:"timeoutMs,omitempty"`
	Config       json.RawMessage `json:"config,omitempty"`
	Hooks        []Hook          `json:"hooks,omitempty"`
	Disabled     bool            `json:"disabled,omitempty"`
}

// Op is what a step does.
type Op string

const (
	OpList     Op = "list"     // interceptors/list
	OpInvoke   Op = "invoke"   // interceptor/invoke
	OpApply    Op = "apply"    // one phase through the engine; chain is the same
	OpExchange Op = "exchange" // a whole operation through the engine, upstream included (extension)
	OpRequest  Op = "request"  // one raw request to the host's endpoint (extension)
	OpChange   Op = "change"   // the host gets more interceptors, and what engines know of it has grown old (extension)
)

// Step is one call against the session and what must come of it.
type Step struct {
	Op      Op              `json:"op"`
	Event   *string         `json:"event,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"` // invoke: its params; request: see Request
	Phase   string          `json:"phase,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Context *Context        `json:"context,omitempty"`

	Upstream *Upstream `json:"upstream,omitempty"` // exchange
	Request  *Request  `json:"request,omitempty"`  // request

	Interceptors []Interceptor `json:"interceptors,omitempty"` // change

	Expect Expect `json:"expect"`
}

// Context is whom and what an applied phase belongs to. Fields after SessionID are extensions.
type Context struct {
	SessionID string `json:"sessionId,omitempty"`
	Tenant    string `json:"tenant,omitempty"`
	TraceID   string `json:"traceId,omitempty"`
	SpanID    string `json:"spanId,omitempty"`
	Protocol  string `json:"protocol,omitempty"` // negotiated revision
	Principal string `json:"principal,omitempty"`
	// FromServer says that the server began the operation: the roles are swapped, so each posture has the
	// directions of the other.
	FromServer bool `json:"fromServer,omitempty"`
}

// Upstream is how the target of an exchange answers: exactly one of the two.
type Upstream struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
	// Pad makes the result one text of so many bytes.
	Pad int `json:"pad,omitempty"`
	// Notes are params of progress notifications that it sends before its answer, on a stream. The agent
	// must get them as they are.
	Notes []json.RawMessage `json:"notes,omitempty"`
	// Notifies are other notifications that it sends before its answer, on a stream.
	Notifies []Notification `json:"notifies,omitempty"`
	// Asks is what it asks of the agent before its answer, on a stream.
	Asks *Question `json:"asks,omitempty"`
}

// Notification is a message of a server that wants no answer.
type Notification struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// Question is a request of a server to its client, and how the client answers.
type Question struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Answer json.RawMessage `json:"answer"` // result
}

// Request is one request to the host's endpoint, on a connection of its own. Without Bare it is completed to
// a right request of revision 2026-07-28, or of Revision: headers, jsonrpc, id and _meta; Headers of an empty
// value are left out.
type Request struct {
	Verb     string            `json:"verb,omitempty"`     // defaults to POST
	Revision string            `json:"revision,omitempty"` // defaults to 2026-07-28
	Method   string            `json:"method,omitempty"`
	Params   json.RawMessage   `json:"params,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Meta     json.RawMessage   `json:"meta,omitempty"` // in place of the right _meta
	Bare     bool              `json:"bare,omitempty"`
}

// isHTTP reports a request that only HTTP can carry.
func (r *Request) isHTTP() bool {
	return r.Verb != "" || len(r.Headers) > 0 || r.Bare
}

// isStatusAlone reports an expectation that only HTTP can disappoint.
func (e *Expect) isStatusAlone() bool {
	return e.Status != 0 && e.ErrorCode == nil && e.Match == nil && e.Result == nil && e.Canonical == ""
}

// Expect is what must come of a step. Fields after Requires are extensions, and are looked at besides.
type Expect struct {
	Result                json.RawMessage `json:"result,omitempty"`
	Canonical             string          `json:"canonical,omitempty"` // of Result, which is taken where this is missing
	ErrorCode             *int64          `json:"errorCode,omitempty"`
	Decision              string          `json:"decision,omitempty"` // allow or deny
	FinalPayload          json.RawMessage `json:"finalPayload,omitempty"`
	FinalPayloadCanonical string          `json:"finalPayloadCanonical,omitempty"`
	Forbids               []string        `json:"forbids,omitempty"`  // of the final payload, or of all that an answer says
	Requires              []string        `json:"requires,omitempty"` // the same

	Match        json.RawMessage `json:"match,omitempty"`     // part of the result
	ErrorData    json.RawMessage `json:"errorData,omitempty"` // part of error.data
	Absent       []string        `json:"absent,omitempty"`    // JSON pointers into the result
	Status       int             `json:"status,omitempty"`    // of HTTP
	Calls        map[string]int  `json:"calls,omitempty"`     // how often the step made each interceptor run
	MaxCalls     map[string]int  `json:"maxCalls,omitempty"`
	WithinMs     int64           `json:"withinMs,omitempty"`
	Summary      json.RawMessage `json:"summary,omitempty"`  // of an applied phase
	Recorded     []string        `json:"recorded,omitempty"` // interceptors that took part, in plan order
	Failed       []string        `json:"failed,omitempty"`   // interceptors whose invocation failed
	Received     json.RawMessage `json:"received,omitempty"` // params that the upstream of an exchange got
	SamePayloads []string        `json:"samePayloads,omitempty"`
	Asked        json.RawMessage `json:"asked,omitempty"`    // params of the question that the agent got; null: none
	Told         json.RawMessage `json:"told,omitempty"`     // the answer that the upstream got: an object with result or error
	Notified     []Notification  `json:"notified,omitempty"` // what the agent was notified of, progress aside, in any order; empty: nothing
	Alerts       []string        `json:"alerts,omitempty"`   // what the operator must have been told by then; host-NAME is a host or its address
	AnyOf        []Expect        `json:"anyOf,omitempty"`    // one of these must hold
}

// Feature is what an adapter can do beyond the four published calls and eight published behaviors.
type Feature string

const (
	FeatureServerPosture Feature = "server-posture"
	FeatureHostOptions   Feature = "host-options"
	FeaturePolicy        Feature = "policy"
	FeatureHosts         Feature = "hosts"       // several hosts, some of them gone
	FeatureDescriptor    Feature = "descriptor"  // hooks, priorityHint, compat, configSchema, defaultConfig
	FeatureCalls         Feature = "calls"       // counts invocations of each interceptor
	FeatureRecords       Feature = "records"     // tells who took part in a phase, who failed, and the summary
	FeatureContext       Feature = "context"     // trace of an operation
	FeatureProtocol      Feature = "protocol"    // protocol revision of an operation
	FeaturePrincipal     Feature = "principal"   // who calls
	FeatureTenant        Feature = "tenant"      // tenant of an applied phase's invoker
	FeatureErrorData     Feature = "error-data"  // error.data of a refused invocation
	FeatureExchange      Feature = "exchange"    // exchange steps
	FeatureRequest       Feature = "request"     // request steps: any method on the wire
	FeatureHTTP          Feature = "http"        // request steps that name verbs or headers, or are sent without any
	FeatureEveryEvent    Feature = "every-event" // applies events other than tools/call
	FeatureFromServer    Feature = "from-server" // applies operations that the server began
	FeatureChange        Feature = "change"      // change steps
	FeatureGateway       Feature = "gateway"     // relays what is not governed: tasks, streams
	FeatureLimit         Feature = "limit"       // takes no answers of the target above 2 MB
	FeatureAlerts        Feature = "alerts"      // tells what its operator is told
	FeatureTTL           Feature = "ttl"         // its hosts say how long their lists hold
	FeatureScrub         Feature = "scrub"       // can pass errors on without their text
	FeatureInvoke        Feature = "invoke"      // list and invoke steps; every adapter of a host has it
)

// HostNames are the names of the fixture's hosts in order of first mention, one at least.
func (f *Fixture) HostNames() []string {
	var names []string
	for i := range f.Interceptors {
		if name := f.Interceptors[i].Host; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return []string{""}
	}
	return names
}

// HostOf is the host of an interceptor: where the fixture registers it, else the first.
func (f *Fixture) HostOf(interceptor string) string {
	for i := range f.Interceptors {
		if f.Interceptors[i].Name == interceptor {
			return f.Interceptors[i].Host
		}
	}
	return f.HostNames()[0]
}

// BehaviorFeature is the feature of having a behavior that the published fixtures do not name.
func BehaviorFeature(behavior string) Feature { return Feature("behavior:" + behavior) }

// published are the behaviors that every adapter has.
var published = []string{
	"allow-all", "deny-all", "require-note", "require-uppercase-note", "uppercase-note", "crash",
	"cross-boundary-guard", "secretless-redactor",
}

// Needs returns the features without which the fixture cannot be tried, sorted.
func (f *Fixture) Needs() []Feature {
	need := needs{}
	need.add(f.Posture == PostureServer, FeatureServerPosture)
	need.add(f.Host.LegacyEnvelope || f.Host.LegacyTimeoutCode, FeatureHostOptions)
	need.add(len(f.Host.Down) > 0, FeatureHosts)
	need.add(f.Host.TTLMs > 0, FeatureTTL)
	need.add(f.Policy.ScrubErrors, FeatureScrub)
	need.add(f.Policy.isSet(), FeaturePolicy)
	for i := range f.Interceptors {
		need.interceptor(&f.Interceptors[i])
	}
	for i := range f.Steps {
		need.step(&f.Steps[i])
	}
	return need.sorted()
}

func (p *Policy) isSet() bool {
	return len(p.Overrides) > 0 || len(p.Required) > 0 || p.DeadlineMs > 0 || p.Strict || p.MaxPayload > 0
}

type needs map[Feature]bool

func (n needs) add(needed bool, f Feature) {
	if needed {
		n[f] = true
	}
}

func (n needs) interceptor(i *Interceptor) {
	n.add(!slices.Contains(published, i.Behavior), BehaviorFeature(i.Behavior))
	n.add(i.Host != "", FeatureHosts)
	n.add(i.Hooks != nil || i.PriorityHint != nil || i.Compat != nil || i.ConfigSchema != nil || i.DefaultConfig != nil,
		FeatureDescriptor)
}

func (n needs) step(s *Step) {
	c := s.Context
	n.add(s.Op == OpList || s.Op == OpInvoke, FeatureInvoke)
	n.add(s.Op == OpApply && s.Event != nil && *s.Event != "tools/call", FeatureEveryEvent)
	n.add(s.Op == OpExchange, FeatureExchange)
	n.add(s.Op == OpRequest, FeatureRequest)
	n.add(s.Op == OpRequest && (s.Request.isHTTP() || s.Expect.isStatusAlone()), FeatureHTTP)
	n.add(c != nil && c.TraceID != "", FeatureContext)
	n.add(c != nil && c.Protocol != "", FeatureProtocol)
	n.add(c != nil && c.Principal != "", FeaturePrincipal)
	n.add(c != nil && c.FromServer, FeatureFromServer)
	n.add(s.Op == OpChange, FeatureChange)
	n.add(s.Op == OpExchange && s.Event != nil && strings.HasPrefix(*s.Event, "tasks/"), FeatureGateway)
	n.add(s.Op == OpExchange && (len(s.Upstream.Notes)+len(s.Upstream.Notifies) > 0 || s.Upstream.Asks != nil), FeatureGateway)
	n.add(s.Op == OpExchange && s.Upstream.Pad > 0, FeatureLimit)
	for i := range s.Interceptors {
		n.interceptor(&s.Interceptors[i])
	}
	n.add(c != nil && c.Tenant != "", FeatureTenant)
	n.expect(&s.Expect)
}

func (n needs) expect(e *Expect) {
	n.add(len(e.Calls) > 0 || len(e.MaxCalls) > 0 || len(e.SamePayloads) > 0, FeatureCalls)
	n.add(len(e.Summary) > 0 || len(e.Recorded) > 0 || len(e.Failed) > 0, FeatureRecords)
	n.add(len(e.ErrorData) > 0, FeatureErrorData)
	n.add(len(e.Alerts) > 0, FeatureAlerts)
	for i := range e.AnyOf {
		n.expect(&e.AnyOf[i])
	}
}

func (n needs) sorted() []Feature {
	list := make([]Feature, 0, len(n))
	for f := range n {
		list = append(list, f)
	}
	slices.Sort(list)
	return list
}
