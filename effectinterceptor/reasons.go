package effectinterceptor

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// outcomes of a call, as hosts and agents read them under "dev.undolog/effect".
const (
	outcomeExecute     = "execute"
	outcomeReplay      = "replay"
	outcomeInProgress  = "in_progress"
	outcomeDenied      = "denied"
	outcomeInDoubt     = "in_doubt"
	outcomeConflict    = "conflict"
	outcomeInvalid     = "invalid"
	outcomeUnavailable = "unavailable"
	outcomeApproval    = "approval_required"
	outcomeExpired     = "expired"
	outcomeVoid        = "void"
	outcomeLimit       = "limit"
)

// codeInvalidParams and codeInternal are JSON-RPC 2.0's.
const (
	codeInvalidParams = -32602
	codeInternal      = -32603
)

// info is the object under info["dev.undolog/effect"] and error.data["dev.undolog/effect"]. Members that
// are zero, but for the outcome, are left out.
type info struct {
	Outcome      string
	EffectID     string
	Identity     string
	Signature    effect.Signature
	Attempt      int
	State        string
	Replayed     bool
	RetryAfterMs int64
	Stateless    bool
	Path         string    // outcome invalid: JSON pointer into params
	Errors       []problem // outcome invalid: what the tool's schema has against the arguments
	Redacted     bool      // the recorded answer is without what is not kept of it
	ApprovalID   string    // of the request
	URL          string    // where it is decided
	Until        time.Time
	By           string // who decided
	At           time.Time
	Edited       bool // other arguments ran than were sent
	Reason       string
}

// appendTo appends i as a JSON object. It is written by hand because every call has one.
func (i *info) appendTo(dst []byte) []byte {
	dst = appendQuoted(append(dst, `{"outcome":`...), i.Outcome)
	dst = appendText(dst, "effectId", i.EffectID)
	dst = appendText(dst, "identity", i.Identity)
	if !i.Signature.IsZero() {
		dst = append(i.Signature.Append(append(dst, `,"signature":"`...)), '"')
	}
	dst = appendNumber(dst, "attempt", int64(i.Attempt))
	dst = appendText(dst, "state", i.State)
	dst = appendTrue(dst, "replayed", i.Replayed)
	dst = appendNumber(dst, "retryAfterMs", i.RetryAfterMs)
	dst = appendTrue(dst, "stateless", i.Stateless)
	dst = appendText(dst, "path", i.Path)
	dst = appendProblems(dst, i.Errors)
	dst = appendTrue(dst, "redacted", i.Redacted)
	dst = appendText(dst, "approvalId", i.ApprovalID)
	dst = appendText(dst, "url", i.URL)
	dst = appendTime(dst, "until", i.Until)
	dst = appendText(dst, "by", i.By)
	dst = appendTime(dst, "at", i.At)
	dst = appendTrue(dst, "edited", i.Edited)
	dst = appendText(dst, "reason", i.Reason)
	return append(dst, '}')
}

func appendName(dst []byte, name string) []byte {
	return append(append(append(dst, `,"`...), name...), `":`...)
}

func appendText(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return appendQuoted(appendName(dst, name), value)
}

func appendNumber(dst []byte, name string, value int64) []byte {
	if value == 0 {
		return dst
	}
	return strconv.AppendInt(appendName(dst, name), value, 10)
}

func appendTime(dst []byte, name string, value time.Time) []byte {
	if value.IsZero() {
		return dst
	}
	return append(value.UTC().AppendFormat(append(appendName(dst, name), '"'), time.RFC3339), '"')
}

func appendProblems(dst []byte, problems []problem) []byte {
	if len(problems) == 0 {
		return dst
	}
	return append(appendName(dst, "errors"), encodeProblems(problems)...)
}

func encodeProblems(problems []problem) []byte {
	raw, err := splice.Encode(problems)
	if err != nil {
		panic(fmt.Sprintf("encode problems: %v", err)) // strings
	}
	return raw
}

func appendTrue(dst []byte, name string, value bool) []byte {
	if !value {
		return dst
	}
	return append(appendName(dst, name), "true"...)
}

// dispatchInfo is the info member by which an engine learns how to dispatch.
const dispatchInfo = "dev.undolog/dispatch"

// infoRoom is how long most infos are at the most.
const infoRoom = 320

// wrapped is i as the member dev.undolog/effect of an object.
func (i *info) wrapped() json.RawMessage {
	out := append(make([]byte, 0, infoRoom), `{"`+effectMeta+`":`...)
	return append(i.appendTo(out), '}')
}

// dispatched is wrapped with how the contract wants the call to be dispatched beside it, where an engine
// finds it soon. key is what the target may know another attempt by.
func (i *info) dispatched(c *effect.Contract, key string) json.RawMessage {
	out := append(make([]byte, 0, infoRoom), `{"`+dispatchInfo+`":{"detach":`...)
	out = strconv.AppendBool(out, c.Detach)
	out = appendNumber(out, "timeoutMs", clampMs(c.Timeout))
	if c.Inject.Into == effect.InjectHeader {
		out = append(appendQuoted(append(appendName(out, "headers"), '{'), c.Inject.Name), ':')
		out = append(appendQuoted(out, key), '}')
	}
	out = append(out, `},"`+effectMeta+`":`...)
	return append(i.appendTo(out), '}')
}

// block stops a call with a reason that its model can act on.
func (i *info) block(code int64) *interceptors.BlockError {
	return &interceptors.BlockError{Code: code, Message: i.Reason, Data: i.wrapped()}
}

func newInfo(outcome string, id *effect.Identity, r *effect.Record) *info {
	i := &info{Outcome: outcome}
	if id != nil {
		i.Identity = string(id.Rule)
		i.Stateless = id.Rule == effect.RuleNone
		i.Signature = id.Signature
	}
	if r != nil {
		i.EffectID, i.Attempt = r.ID, r.Attempt
	}
	return i
}

func invalid(e *effect.InvalidError) *info {
	i := &info{Outcome: outcomeInvalid, Path: shorten(e.Pointer)}
	if i.Path == "" {
		i.Path = "/"
		i.Reason = fmt.Sprintf("This call was not made: %s.", e.Reason)
		return i
	}
	i.Reason = fmt.Sprintf("This call was not made: params%s %s.", i.Path, e.Reason)
	return i
}

// invalidCall says what is wrong with a call; nil for an error of another kind.
func invalidCall(err error) *info {
	if bad, ok := errors.AsType[*effect.InvalidError](err); ok {
		return invalid(bad)
	}
	if bad, ok := errors.AsType[*schemaError](err); ok {
		return wrongArguments(bad)
	}
	return nil
}

// maxToldProblems is how many problems the text for the model names; the list beside it has them all.
const maxToldProblems = 8

func wrongArguments(e *schemaError) *info {
	i := &info{Outcome: outcomeInvalid, Path: e.problems[0].Path, Errors: e.problems}
	var told []string
	for _, p := range e.problems[:min(len(e.problems), maxToldProblems)] {
		told = append(told, strings.TrimPrefix(p.Path, "/")+": "+p.Message)
	}
	if more := len(e.problems) - len(told); more > 0 {
		told = append(told, fmt.Sprintf("and %d more", more))
	}
	i.Reason = "This call was not made: its arguments are not as the tool's schema says. " + strings.Join(told, "; ") + "."
	return i
}

// messages is the reason as a verdict of a validator tells it.
func (i *info) messages() []interceptors.Message {
	if len(i.Errors) == 0 {
		return []interceptors.Message{{Message: i.Reason, Severity: interceptors.SeverityError, Path: i.pointer()}}
	}
	var all []interceptors.Message
	for _, p := range i.Errors {
		all = append(all, interceptors.Message{Message: p.Message, Severity: interceptors.SeverityError, Path: p.Path})
	}
	return all
}

// pointer is Path as a JSON pointer, empty for the whole params.
func (i *info) pointer() string {
	if i.Path == "/" {
		return ""
	}
	return i.Path
}

// shorten bounds what can be as long as a requester makes it.
func shorten(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func unavailable(server string) *info {
	return &info{
		Outcome:      outcomeUnavailable,
		RetryAfterMs: 2000,
		Reason: fmt.Sprintf("This call was not made: the effect log cannot be written at the moment, and calls that change something on %s "+
			"are not made without a record. Nothing was sent. Try the same call again later.", server),
	}
}

func inProgress(id *effect.Identity, r *effect.Record) *info {
	i := newInfo(outcomeInProgress, id, r)
	i.RetryAfterMs = 2000
	i.Reason = fmt.Sprintf("This call is already running (effect %s, begun %s) and was not started a second time. "+
		"Send exactly the same call again to get its result.", r.ID, stamp(r.CreatedAt))
	return i
}

func inDoubt(id *effect.Identity, r *effect.Record) *info {
	i := newInfo(outcomeInDoubt, id, r)
	i.Reason = fmt.Sprintf("The outcome of this call is not known: it was begun %s (effect %s) and no answer was recorded. "+
		"It may have taken effect, so it was not sent again. Do not try it in another way: "+
		"look at the target, and have a person settle it with `undolog resolve %s`.", stamp(r.CreatedAt), r.ID, r.Reference())
	return i
}

// unprobed is inDoubt where a probe was to tell the outcome, and could not.
func unprobed(id *effect.Identity, r *effect.Record, said *Probed) *info {
	i := inDoubt(id, r)
	i.Reason += fmt.Sprintf(" It was looked up with %s, which could not tell", said.Tool)
	if said.Why != "" {
		i.Reason += ": " + strings.TrimSuffix(said.Why, ".")
	}
	i.Reason += "."
	return i
}

func lost(id *effect.Identity, r *effect.Record, idempotent bool) *info {
	if idempotent {
		i := newInfo(outcomeInDoubt, id, r)
		i.Reason = fmt.Sprintf("The answer to this call was lost (effect %s). Its tool is safe to repeat: send the same call again.", r.ID)
		return i
	}
	return inDoubt(id, r)
}

func unsent(id *effect.Identity, r *effect.Record) *info {
	i := newInfo(outcomeUnavailable, id, r)
	i.RetryAfterMs = 1000
	i.Reason = "This call was not made: its target could not be reached, and nothing was sent. It is safe to send the same call again."
	return i
}

func unreadable(id *effect.Identity, r *effect.Record) *info {
	i := newInfo(outcomeReplay, id, r)
	i.State = string(r.State)
	i.Reason = fmt.Sprintf("This call was made before (effect %s) and was not sent again, but what was recorded of its answer cannot be given "+
		"as a result. A person can read it with `undolog show %s`.", r.ID, r.Reference())
	return i
}

func refused(outcome, reason string, id *effect.Identity, r *effect.Record) *info {
	i := newInfo(outcome, id, r)
	i.Reason = "This call was not made: " + strings.TrimSuffix(reason, ".") + "."
	return i
}

// repeated is what a model reads beside a replayed answer that it may not have expected.
func repeated(r *effect.Record, window time.Duration) string {
	return fmt.Sprintf("UndoLog: nothing was run for this call. An equal call ran %s (effect %s) and this is its recorded answer; "+
		"equal calls are answered from the record until %s. If it was meant to happen once more, a person can run `undolog again %s`.",
		stamp(r.CreatedAt), r.ID, stamp(r.ChangedAt.Add(window)), r.Reference())
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
