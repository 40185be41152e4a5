package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/undolog/undolog/effect"
)

// Settle records how a claimed dispatch ended, whatever becomes of ctx, and returns the effect as it
// then is. An outcome that comes late is taken when nobody else has moved the attempt: after a time-out
// or a lost lease it still settles. When a person or another attempt was first, the effect is returned
// as it is and a late answer is noted; that is no error, and neither is settling twice. On an error the
// outcome is kept, the claim held, and recording tried again for as long as the log is open; so it is when
// the first attempt takes longer than Options.SettleTimeout.
func (l *Log) Settle(ctx context.Context, claim effect.Claim, contract *effect.Contract, outcome effect.Outcome) (*effect.Record, error) {
	s := &settlement{log: l, claim: claim, outcome: outcome, to: effect.Settlement(contract, outcome)}
	record, err := s.record(ctx, l.opts.SettleTimeout)
	if err != nil {
		l.retrySettle(context.WithoutCancel(ctx), s)
		return nil, fmt.Errorf("settle effect %s: %w", claim.Effect, err)
	}
	l.release(claim.Effect)
	return record, nil
}

// settlement is one outcome on its way into the log.
type settlement struct {
	log     *Log
	claim   effect.Claim
	outcome effect.Outcome
	to      effect.State
}

// record appends the outcome after the claim or, when the same attempt was moved on meanwhile in a way
// that leaves room for an answer, after that.
func (s *settlement) record(ctx context.Context, timeout time.Duration) (*effect.Record, error) {
	ctx, cancel := detached(ctx, timeout)
	defer cancel()
	ordinal := s.claim.Ordinal + 1
	for {
		record, err := s.log.driver.Append(ctx, s.claim.Tenant, s.transition(ordinal))
		if err == nil {
			s.log.settled.wake(s.claim.Tenant, s.claim.Effect)
			return record, nil
		}
		conflict, ok := errors.AsType[*ConflictError](err)
		if !ok {
			return nil, err
		}
		now := conflict.Record
		if s.mayFollow(now) && now.Ordinal+1 > ordinal {
			ordinal = now.Ordinal + 1
			continue
		}
		s.noteLate(now)
		return now, nil
	}
}

func (s *settlement) transition(ordinal int) *effect.Transition {
	return &effect.Transition{
		Effect: s.claim.Effect, Ordinal: ordinal, Attempt: s.claim.Attempt, State: s.to, Owner: s.claim.Owner,
		Reason: s.outcome.Reason, Answer: s.outcome.Answer, Continuation: s.outcome.Continuation,
	}
}

// mayFollow reports whether the outcome is still news: our attempt, in doubt or waiting, and not claimed
// again by a round that goes on.
func (s *settlement) mayFollow(now *effect.Record) bool {
	open := now.State == effect.StateInDoubt || now.State == effect.StateWaiting
	return open && now.Attempt == s.claim.Attempt && now.Owner == s.claim.Owner && effect.CanMove(now.State, s.to)
}

// noteLate tells of an answer that came when the effect was settled otherwise.
func (s *settlement) noteLate(now *effect.Record) {
	a := s.outcome.Answer
	if s.outcome.Kind != effect.OutcomeAnswered || now.Attempt == s.claim.Attempt && now.By == "" && bytes.Equal(now.Answer.Body, a.Body) {
		return
	}
	detail, err := json.Marshal(lateDetail{Attempt: s.claim.Attempt, Answer: string(a.Kind), IsError: a.IsError, Would: string(s.to), State: string(now.State)})
	if err != nil {
		return // of three strings, a number and a boolean: cannot be
	}
	s.log.Note(effect.Event{
		Tenant: now.Tenant, Effect: now.ID, Kind: effect.EventLate,
		Principal: now.Principal, Server: now.Server, Tool: now.Tool, Detail: detail,
	})
}

type lateDetail struct {
	Attempt int    `json:"attempt"`
	Answer  string `json:"answer"`
	IsError bool   `json:"isError"`
	Would   string `json:"would"` // the state to which it would have led
	State   string `json:"state"` // the state in which it found the effect
}

// retrySettle keeps an outcome that could not be recorded and tries again, more and more slowly, and once
// more when the log is closed. Should the heartbeat not be recorded either, the effect is in doubt to others.
func (l *Log) retrySettle(ctx context.Context, s *settlement) {
	started := l.spawn(func() {
		for wait := 250 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
			closing := l.sleep(wait)
			_, err := s.record(ctx, writeTimeout)
			switch {
			case err == nil, errors.Is(err, ErrNotFound):
				l.release(s.claim.Effect)
				return
			case closing:
				l.notRecorded(ctx, s, err)
				return
			}
			l.logger.WarnContext(ctx, "outcome not recorded yet", slog.String("effect", s.claim.Effect), slog.Any("error", err))
		}
	})
	if !started {
		l.notRecorded(ctx, s, ErrClosed)
	}
}

func (l *Log) notRecorded(ctx context.Context, s *settlement, err error) {
	l.logger.ErrorContext(ctx, "outcome not recorded", slog.String("effect", s.claim.Effect), slog.Any("error", err))
}

// sleep pauses until the log is closed, which it then reports.
func (l *Log) sleep(d time.Duration) (closing bool) {
	select {
	case <-l.life.Done():
		return true
	case <-time.After(d):
		return false
	}
}
