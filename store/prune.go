package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/undolog/undolog/effect"
)

// Pruning says whose payloads are to be taken away. Zero fields select all.
type Pruning struct {
	Before   time.Time    // what was settled before then; required
	Tenant   string       // of this tenant's
	Server   string       // of calls of this server's tools
	Dry      bool         // only count them
	Progress func(Pruned) // is told of all that was done so far, now and then; defaults to nobody

	Walk  *Walk // how far it has come, and then comes; nil: from the beginning
	Limit int64 // stop when about so many effects were looked at; zero: at the end
}

// Pruned is what pruning has come to.
type Pruned struct {
	Looked  int64 `json:"looked"`  // effects that were looked at
	Effects int64 `json:"effects"` // effects that lost something
	Bytes   int64 `json:"bytes"`   // of arguments and answers that are gone
}

// Walk is how far pruning has come through a log in the order of recording, so that it can be done in stretches,
// and need not come by again where nothing is left to take away. Its zero value is at the beginning.
type Walk struct {
	Ended bool // it has come to what is too young

	places map[string]*Place
}

// Place is how far a walk has come in one part of the log.
type Place struct {
	After int64 // Seq of the last effect that was looked at
	Ended bool

	kept int64 // of the first effect that has something left to lose; zero: none
}

// Place returns the walk's place in a part of the log, which the driver divides as it goes through it.
func (w *Walk) Place(part string) *Place {
	if w.places == nil {
		w.places = map[string]*Place{}
	}
	if w.places[part] == nil {
		w.places[part] = &Place{}
	}
	return w.places[part]
}

// Pass moves the place on to the last effect of a stretch. kept is the first of them that was open or too young,
// zero when all are settled and pruned.
func (p *Place) Pass(last, kept int64) {
	p.After = last
	if p.kept == 0 {
		p.kept = kept
	}
}

// Again begins the next walk where this one has first left something. It does not see what is begun again before
// that, having failed: a Walk from the beginning does.
func (w *Walk) Again() {
	w.Ended = false
	for _, p := range w.places {
		if p.kept > 0 {
			p.After = min(p.After, p.kept-1)
		}
		p.kept, p.Ended = 0, false
	}
}

// IsEnough reports whether as many effects were looked at as were to be.
func (p *Pruning) IsEnough(sum *Pruned) bool { return p.Limit > 0 && sum.Looked >= p.Limit }

// Add counts one more stretch of the log and tells of it.
func (p *Pruning) Add(sum *Pruned, step Pruned) {
	sum.Looked, sum.Effects, sum.Bytes = sum.Looked+step.Looked, sum.Effects+step.Effects, sum.Bytes+step.Bytes
	if p.Progress != nil {
		p.Progress(*sum)
	}
}

// Prune takes away the arguments and answers of effects that were settled before a time, everything else
// stays: an equal call still matches, is still not run again where it was not, and is told that the
// recorded answer is gone. It can be called at any time, by any number of processes; one that was interrupted
// has pruned what it says, and is simply begun again.
func (l *Log) Prune(ctx context.Context, p *Pruning) (Pruned, error) {
	byLog := *p
	byLog.Before = l.logTime(p.Before)
	pruned, err := l.driver.Prune(ctx, &byLog)
	if err != nil {
		return pruned, fmt.Errorf("prune effects settled before %s: %w", p.Before.Format(time.RFC3339), err)
	}
	return pruned, nil
}

// codePruned is the code of an error whose recorded object is gone; JSON-RPC 2.0 leaves it to servers.
const codePruned = -32000

// Unpruned is an answer as a driver has read it. One whose bytes were pruned, which no answer is without,
// says in its own kind what it was and that it is gone.
func Unpruned(a effect.Answer, at time.Time) effect.Answer {
	if a.Kind == effect.AnswerNone || len(a.Body) > 0 {
		return a
	}
	text := "This call was answered at " + at.UTC().Format(time.RFC3339) + ". The recorded answer is no longer kept. The call was not run again."
	var body any = prunedResult{Content: []textBlock{{Type: "text", Text: text}}, IsError: a.IsError, ResultType: "complete"}
	if a.Kind == effect.AnswerError {
		body = prunedError{Code: codePruned, Message: text}
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return a // of strings and a boolean: cannot be
	}
	a.Body, a.Pruned = encoded, true
	return a
}

type prunedResult struct {
	Content    []textBlock `json:"content"`
	IsError    bool        `json:"isError,omitempty"`
	ResultType string      `json:"resultType"`
}

type prunedError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}
