package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/undolog/undolog/effect"
)

// ResolveParams is what a person says about an effect whose outcome the log does not know.
type ResolveParams struct {
	Tenant string
	ID     string
	To     effect.State    // StateCommitted: it was applied; StateFailed: it was not
	Result json.RawMessage // what the tool answered, if the person knows: a JSON object
	By     string          // "user:NAME", or "probe:TOOL"
	Reason string
	// Attempt is the one that is spoken of: when the effect has gone on to another one nothing is changed.
	// Zero is the latest.
	Attempt int
}

var errNobody = errors.New("who says so is missing")

// Resolve settles an effect that is in doubt or waiting by a person's word, or a probe's. Where that is committed and
// nobody knows the answer, replays say by whom and when it was settled. Anything else is a *ConflictError with
// the effect as it is; a late answer of the attempt is noted afterwards and changes nothing.
func (l *Log) Resolve(ctx context.Context, p ResolveParams) (*effect.Record, error) {
	record, err := l.resolve(ctx, &p)
	if err != nil {
		return nil, fmt.Errorf("resolve effect %s: %w", p.ID, err)
	}
	l.settled.wake(p.Tenant, p.ID)
	return record, nil
}

func (l *Log) resolve(ctx context.Context, p *ResolveParams) (*effect.Record, error) {
	if p.To != effect.StateCommitted && p.To != effect.StateFailed {
		return nil, fmt.Errorf("%q is not an end: name %s or %s", p.To, effect.StateCommitted, effect.StateFailed)
	}
	if p.By == "" {
		return nil, errNobody
	}
	was, err := l.driver.Effect(ctx, p.Tenant, p.ID)
	if err != nil {
		return nil, err
	}
	now := l.opts.Now()
	another := p.Attempt != 0 && p.Attempt != was.Attempt
	if s := was.StateAt(now); another || s != effect.StateInDoubt && s != effect.StateWaiting {
		return nil, &ConflictError{ID: was.ID, Want: p.To, Record: was}
	}
	answer, err := p.answer(now)
	if err != nil {
		return nil, err
	}
	return l.driver.Append(ctx, p.Tenant, &effect.Transition{
		Effect: was.ID, Ordinal: was.Ordinal + 1, Attempt: was.Attempt, State: p.To,
		By: p.By, Reason: p.Reason, Answer: answer,
	})
}

// answer is what a later identical call is told.
func (p *ResolveParams) answer(now time.Time) (effect.Answer, error) {
	if p.Result != nil {
		return givenResult(p.Result)
	}
	if p.To != effect.StateCommitted {
		return effect.Answer{}, nil // it may run again: nothing to tell
	}
	text := fmt.Sprintf("This call was applied. Its answer was lost; %s confirmed it at %s.", p.By, now.UTC().Format(time.RFC3339))
	if p.Reason != "" {
		text += " Reason: " + p.Reason
	}
	body, err := json.Marshal(confirmation{Content: []textBlock{{Type: "text", Text: text}}, ResultType: "complete"})
	return effect.Answer{Kind: effect.AnswerResult, Body: body}, err
}

// confirmation is the tools/call result that stands in for a lost one. ResultType is required from
// protocol version 2026-07-28 on and ignored before.
type confirmation struct {
	Content    []textBlock `json:"content"`
	ResultType string      `json:"resultType"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func givenResult(result json.RawMessage) (effect.Answer, error) {
	var known *struct {
		IsError bool `json:"isError"`
	}
	if err := json.Unmarshal(result, &known); err != nil || known == nil {
		return effect.Answer{}, errors.New("the result is not a JSON object of a tools/call result")
	}
	return effect.Answer{Kind: effect.AnswerResult, Body: result, IsError: known.IsError}, nil
}

// AgainParams is what a person says about a settled effect that is to happen once more.
type AgainParams struct {
	Tenant string
	ID     string
	By     string // "user:NAME"
	Reason string
}

// Again allows one more run of a settled effect: the next identical call runs as its next generation.
// Allowing twice before it runs allows one. An open effect is a *ConflictError: resolve it first.
func (l *Log) Again(ctx context.Context, p AgainParams) error {
	if err := l.again(ctx, &p); err != nil {
		return fmt.Errorf("allow effect %s again: %w", p.ID, err)
	}
	return nil
}

func (l *Log) again(ctx context.Context, p *AgainParams) error {
	if p.By == "" {
		return errNobody
	}
	detail, err := json.Marshal(againDetail{By: p.By, Reason: p.Reason})
	if err != nil {
		return err
	}
	return l.driver.Again(ctx, &effect.Event{
		Tenant: p.Tenant, Effect: p.ID, Kind: effect.EventAgain, Principal: p.By, Detail: detail,
	})
}

type againDetail struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}
