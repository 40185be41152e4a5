package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// stepTimeout bounds one step: an implementation that hangs fails, and the others are still tried.
const stepTimeout = 30 * time.Second

// Replay takes one fixture's steps in order against a fresh session and returns what was not as expected,
// nothing when the fixture passes. The error is ErrUnsupported when the adapter cannot try it.
func Replay(ctx context.Context, a Adapter, f *Fixture) (faults []string, err error) {
	return replay(ctx, a, f, 1)
}

func replay(ctx context.Context, a Adapter, f *Fixture, patience float64) (faults []string, err error) {
	for _, need := range f.Needs() {
		if !a.Has(need) {
			return nil, fmt.Errorf("%w: %s", ErrUnsupported, need)
		}
	}
	s, err := a.CreateSession(ctx, f)
	switch {
	case errors.Is(err, ErrUnsupported):
		return nil, err
	case f.Rejected && err == nil:
		faults = append(faults, "the interceptors were registered, want a refusal")
	case err != nil && !f.Rejected:
		return []string{fmt.Sprintf("create session: %v", err)}, nil
	case err != nil:
		return nil, nil
	}
	defer func() {
		if cerr := s.Close(); cerr != nil {
			faults = append(faults, fmt.Sprintf("close session: %v", cerr))
		}
	}()
	for i := range f.Steps {
		step := &f.Steps[i]
		got, err := take(ctx, s, step)
		if errors.Is(err, ErrUnsupported) {
			return nil, err
		}
		var found []string
		switch {
		case err != nil:
			found = []string{err.Error()}
		case step.Op == OpChange:
		default:
			got.elapsed = time.Duration(float64(got.elapsed) / patience)
			found = append(step.Expect.judge(step.Op, got, f.Volatile), step.unseen(got)...)
		}
		for _, fault := range found {
			faults = append(faults, fmt.Sprintf("step %d (%s): %s", i+1, step.Op, fault))
		}
	}
	return faults, nil
}

func take(ctx context.Context, s Session, step *Step) (*timed, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	before := callsOf(s)
	started := time.Now()
	got, err := call(ctx, s, step)
	if err != nil {
		return nil, err
	}
	got.elapsed = time.Since(started)
	if texts := step.Expect.Alerts; len(texts) > 0 {
		alerter, ok := s.(Alerter)
		if !ok {
			return nil, fmt.Errorf("%w: %s", ErrUnsupported, FeatureAlerts)
		}
		got.alerts = alerter.Alerts(ctx, texts)
	}
	got.calls = map[string][]json.RawMessage{}
	for name, payloads := range callsOf(s) {
		got.calls[name] = payloads[len(before[name]):]
	}
	return got, nil
}

func callsOf(s Session) map[string][]json.RawMessage {
	if c, ok := s.(Counter); ok {
		return c.Calls()
	}
	return nil
}

func call(ctx context.Context, s Session, step *Step) (*timed, error) {
	switch step.Op {
	case OpList:
		answer, err := s.List(ctx, step.Event)
		return &timed{answer: answer}, err
	case OpInvoke:
		answer, err := s.Invoke(ctx, step.Params)
		return &timed{answer: answer}, err
	case OpApply:
		decision, err := s.Apply(ctx, step)
		return &timed{decision: decision}, err
	case OpExchange:
		x, ok := s.(Exchanger)
		if !ok {
			return nil, fmt.Errorf("%w: %s", ErrUnsupported, FeatureExchange)
		}
		got, err := x.Exchange(ctx, step)
		if err != nil {
			return nil, err
		}
		return &timed{answer: &got.Answer, exchange: got}, nil
	case OpChange:
		c, ok := s.(Changer)
		if !ok {
			return nil, fmt.Errorf("%w: %s", ErrUnsupported, FeatureChange)
		}
		return new(timed), c.Change(ctx, step.Interceptors)
	default:
		r, ok := s.(Requester)
		if !ok {
			return nil, fmt.Errorf("%w: %s", ErrUnsupported, FeatureRequest)
		}
		answer, err := r.Request(ctx, step.Request)
		return &timed{answer: answer}, err
	}
}

// unseen are the notifications of an upstream that did not reach the agent.
func (s *Step) unseen(got *timed) []string {
	if s.Upstream == nil || got.exchange == nil {
		return nil
	}
	var faults []string
	for i, note := range s.Upstream.Notes {
		if i >= len(got.exchange.Notes) {
			return append(faults, fmt.Sprintf("%d of %d progress notifications reached the agent", len(got.exchange.Notes), len(s.Upstream.Notes)))
		}
		if diff := contains(note, got.exchange.Notes[i], "progress notification"); diff != "" {
			faults = append(faults, diff)
		}
	}
	return faults
}

// judge returns how a step's outcome differs from what is expected.
func (e *Expect) judge(op Op, got *timed, volatile []string) []string {
	if len(e.AnyOf) > 0 {
		return e.judgeAny(op, got, volatile)
	}
	var j judgement
	if op == OpApply {
		j.decision(e, got.decision, volatile)
	} else {
		j.answer(e, got, volatile)
	}
	j.calls(e, got.calls)
	for _, text := range e.Alerts {
		if !strings.Contains(got.alerts, text) {
			j.addf("the operator was not told of %q; told was %q", text, got.alerts)
		}
	}
	if e.WithinMs > 0 && got.elapsed > time.Duration(e.WithinMs)*time.Millisecond {
		j.addf("took %s, want at most %d ms", got.elapsed.Round(time.Millisecond), e.WithinMs)
	}
	return j.faults
}

func (e *Expect) judgeAny(op Op, got *timed, volatile []string) []string {
	var all []string
	for i := range e.AnyOf {
		faults := e.AnyOf[i].judge(op, got, volatile)
		if len(faults) == 0 {
			return nil
		}
		all = append(all, strings.Join(faults, "; "))
	}
	return []string{"none of what is allowed: " + strings.Join(all, " | ")}
}

type judgement struct{ faults []string }

func (j *judgement) addf(format string, args ...any) { j.add(fmt.Sprintf(format, args...)) }

// longestFault bounds a line of the report: payloads may be large.
const longestFault = 2000

func (j *judgement) decision(e *Expect, got *Decision, volatile []string) {
	if got.Decision != e.Decision {
		j.addf("decision is %q, want %q", got.Decision, e.Decision)
		return
	}
	if got.FinalPayload == nil && (e.FinalPayload != nil || e.FinalPayloadCanonical != "" || len(e.Requires) > 0) {
		j.addf("no final payload")
		return
	}
	text := ""
	if got.FinalPayload != nil {
		text = j.equal("final payload", e.FinalPayload, e.FinalPayloadCanonical, got.FinalPayload, volatile)
	}
	j.texts(e, text+got.Visible)
	if e.Match != nil {
		j.add(contains(e.Match, got.FinalPayload, "final payload"))
	}
	for _, pointer := range e.Absent {
		if v := pointed(got.FinalPayload, pointer); v != nil {
			j.addf("final payload has %s: %s", pointer, v)
		}
	}
	j.records(e, got)
}

func (j *judgement) records(e *Expect, got *Decision) {
	if e.Summary != nil {
		j.add(contains(e.Summary, got.Summary, "summary"))
	}
	if e.Recorded != nil && !slices.Equal(e.Recorded, got.Recorded) {
		j.addf("took part: %q, want %q", got.Recorded, e.Recorded)
	}
	if e.Failed != nil && !slices.Equal(e.Failed, got.Failed) {
		j.addf("failed: %q, want %q", got.Failed, e.Failed)
	}
}

func (j *judgement) add(fault string) {
	if len(fault) > longestFault {
		fault = strings.ToValidUTF8(fault[:longestFault], "") + "…"
	}
	if fault != "" {
		j.faults = append(j.faults, fault)
	}
}

func (j *judgement) answer(e *Expect, got *timed, volatile []string) {
	a := got.answer
	if e.Status != 0 && a.Status != 0 && a.Status != e.Status {
		j.addf("HTTP status %d, want %d", a.Status, e.Status)
	}
	j.outcome(e, a, volatile)
	for _, pointer := range e.Absent {
		if v := pointed(a.Result, pointer); v != nil {
			j.addf("result has %s: %s", pointer, v)
		}
	}
	j.texts(e, a.text())
	if x := got.exchange; x != nil {
		j.passed("params at the upstream", e.Received, x.Received)
		j.passed("question to the agent", e.Asked, x.Asked)
		j.passed("answer to the upstream's question", e.Told, x.Told)
		j.texts(&Expect{Forbids: e.Forbids}, string(x.Told))
		j.notified(e, x.Notified)
	}
}

// notified wants the agent to have been notified of what is expected, in any order: what a server says on
// two streams may overtake.
func (j *judgement) notified(e *Expect, got []json.RawMessage) {
	if e.Notified == nil {
		return
	}
	left := slices.Clone(got)
	for _, want := range e.Notified {
		text, err := marshal(want)
		if err != nil {
			j.add(err.Error())
			continue
		}
		i := slices.IndexFunc(left, func(n json.RawMessage) bool { return contains(text, n, "") == "" })
		if i < 0 {
			j.addf("the agent was notified of %s, want %s", left, text)
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	if len(left) > 0 {
		j.addf("the agent was also notified of %s", left)
	}
	for _, n := range got {
		j.texts(&Expect{Forbids: e.Forbids}, string(n))
	}
}

// passed compares what came out on another side of the engine: null wants that nothing did.
func (j *judgement) passed(what string, want, got json.RawMessage) {
	switch {
	case want == nil:
	case string(want) != "null":
		j.add(contains(want, got, what))
	case got != nil:
		j.addf("%s: %s, want none", what, got)
	}
}

func (j *judgement) outcome(e *Expect, a *Answer, volatile []string) {
	switch {
	case e.ErrorCode != nil && a.Error == nil:
		j.addf("no error, want code %d; got %s", *e.ErrorCode, a.text())
	case e.ErrorCode != nil && a.Error.Code != *e.ErrorCode:
		j.addf("error code %d (%s), want %d", a.Error.Code, a.Error.Message, *e.ErrorCode)
	case e.ErrorCode == nil && a.Error != nil && (e.Result != nil || e.Canonical != "" || e.Match != nil):
		j.addf("error %d: %s, want a result", a.Error.Code, a.Error.Message)
		return
	}
	if e.ErrorData != nil && a.Error != nil {
		j.add(contains(e.ErrorData, a.Error.Data, "error.data"))
	}
	if e.Result != nil || e.Canonical != "" {
		j.equal("result", e.Result, e.Canonical, a.Result, volatile)
	}
	if e.Match != nil {
		j.add(contains(e.Match, a.Result, "result"))
	}
}

// equal compares canonical forms and returns that of what came.
func (j *judgement) equal(what string, want json.RawMessage, wantCanonical string, got json.RawMessage, volatile []string) string {
	if got == nil {
		j.addf("no %s", what)
		return ""
	}
	clean, err := scrub(got, volatile)
	if err != nil {
		j.addf("%s: %v", what, err)
		return ""
	}
	text, err := canonical(clean)
	if err != nil {
		j.addf("%s: %v", what, err)
		return ""
	}
	if wantCanonical == "" && want != nil {
		if wantCanonical, err = canonical(want); err != nil {
			j.addf("expected %s: %v", what, err)
		}
	}
	if wantCanonical != "" && text != wantCanonical {
		j.addf("%s is %s, want %s", what, text, wantCanonical)
	}
	return text
}

func (j *judgement) texts(e *Expect, text string) {
	for _, forbidden := range e.Forbids {
		if strings.Contains(text, forbidden) {
			j.addf("%q is in %s", forbidden, text)
		}
	}
	for _, required := range e.Requires {
		if !strings.Contains(text, required) {
			j.addf("%q is not in %s", required, text)
		}
	}
}

// text is all that the receiver of an answer can read.
func (a *Answer) text() string {
	if a.Raw != nil {
		return string(a.Raw)
	}
	if a.Error != nil {
		return fmt.Sprintf("%d %s %s", a.Error.Code, a.Error.Message, a.Error.Data)
	}
	return string(a.Result)
}

func (j *judgement) calls(e *Expect, got map[string][]json.RawMessage) {
	for _, name := range slices.Sorted(maps.Keys(e.Calls)) {
		if n := len(got[name]); n != e.Calls[name] {
			j.addf("%s was invoked %d times, want %d", name, n, e.Calls[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.MaxCalls)) {
		if n := len(got[name]); n > e.MaxCalls[name] {
			j.addf("%s was invoked %d times, want at most %d", name, n, e.MaxCalls[name])
		}
	}
	j.samePayloads(e.SamePayloads, got)
}

// samePayloads wants that the named interceptors were each invoked, with equal payloads.
func (j *judgement) samePayloads(names []string, got map[string][]json.RawMessage) {
	for i, name := range names {
		if len(got[name]) == 0 {
			j.addf("%s was not invoked", name)
			return
		}
		if i > 0 {
			j.add(contains(got[names[0]][0], got[name][0], "payload of "+name))
			j.add(contains(got[name][0], got[names[0]][0], "payload of "+names[0]))
		}
	}
}
