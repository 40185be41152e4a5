package effectinterceptor

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/interceptors"
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
)

// codeInvalidParams and codeInternal are JSON-RPC 2.0's.
const (
	codeInvalidParams = -32602
	codeInternal      = -32603
)

// info is the object under info["dev.undolog/effect"] and error.data["dev.undolog/effect"].
type info struct {
	Outcome      string `json:"outcome"`
	EffectID     string `json:"effectId,omitempty"`
	Identity     string `json:"identity,omitempty"`
	Signature    string `json:"signature,omitempty"`
	Attempt      int    `json:"attempt,omitempty"`
	State        string `json:"state,omitempty"`
	Replayed     bool   `json:"replayed,omitempty"`
	RetryAfterMs int64  `json:"retryAfterMs,omitempty"`
	Stateless    bool   `json:"stateless,omitempty"`
	Path         string `json:"path,omitempty"` // outcome invalid: JSON pointer into params
	Reason       string `json:"reason,omitempty"`
}

// wrapped is i as the member dev.undolog/effect of an object.
func (i *info) wrapped(more ...member) json.RawMessage {
	all := map[string]any{effectMeta: i}
	for _, m := range more {
		all[m.name] = m.value
	}
	raw, err := json.Marshal(all)
	if err != nil {
		panic(fmt.Sprintf("marshal info: %v", err)) // only strings, numbers and raw JSON we made
	}
	return raw
}

type member struct {
	name  string
	value any
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
		if !id.Signature.IsZero() {
			i.Signature = id.Signature.String()
		}
	}
	if r != nil {
		i.EffectID, i.Attempt = r.ID, r.Attempt
	}
	return i
}

func invalid(e *effect.InvalidError) *info {
	at := e.Pointer
	if at == "" {
		at = "/"
	}
	return &info{
		Outcome: outcomeInvalid,
		Path:    at,
		Reason:  fmt.Sprintf("This call was not made: params%s %s.", e.Pointer, e.Reason),
	}
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
		"look at the target, and have a person settle it with `undolog resolve %s`.", stamp(r.CreatedAt), r.ID, r.ID)
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

func refused(outcome, reason string, id *effect.Identity, r *effect.Record) *info {
	i := newInfo(outcome, id, r)
	i.Reason = reason
	return i
}

// repeated is what a model reads beside a replayed answer that it may not have expected.
func repeated(r *effect.Record, window time.Duration) string {
	return fmt.Sprintf("UndoLog: nothing was run for this call. An equal call ran %s (effect %s) and this is its recorded answer; "+
		"equal calls are answered from the record until %s. If it was meant to happen once more, a person can run `undolog again %s`.",
		stamp(r.CreatedAt), r.ID, stamp(r.ChangedAt.Add(window)), r.ID)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
