package reaper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Options configures a Reaper. nil stands for all defaults.
type Options struct {
	// Every is how often the log is looked through, give or take a tenth. Defaults to 30 s.
	Every time.Duration
	// Probe finds out about an effect in doubt and settles it if it can; false when it cannot say, with
	// ErrNoProbe when it has none for the effect. Defaults to nothing.
	Probe func(ctx context.Context, r *effect.Record) (settled bool, err error)
	// ProbeEvery is how soon an effect that a probe could say nothing of is asked about again; it doubles
	// with every try, up to an hour. Defaults to Every.
	ProbeEvery time.Duration
	// Retention is how long arguments and answers are kept once their effect is settled, of every tenant; it is
	// asked again in each round. Zero, or nil, stands for ever.
	Retention func() time.Duration
	// Logger gets what was done. Defaults to silence.
	Logger *slog.Logger
}

// ErrNoProbe is what Options.Probe says of an effect that it has no probe for.
var ErrNoProbe = errors.New("there is no probe for it")

// Reaper looks through a log and ends what is over. Its methods are for one goroutine.
type Reaper struct {
	log   *store.Log
	opts  Options
	tries map[string]try // of probes, by effect
	prune time.Time      // when the log is pruned next
	whole time.Time      // when from its beginning
	walk  *store.Walk    // how far that has come
}

// try is when an effect is probed next, and how long is waited after that.
type try struct {
	next  time.Time
	pause time.Duration
}

// Done is what one round has done.
type Done struct {
	Expired  int `json:"expired"`  // requests that nobody decided in time
	Void     int `json:"void"`     // approvals that were not used in time
	Reminded int `json:"reminded"` // requests whose time to decide is nearly over
	InDoubt  int `json:"inDoubt"`  // claims whose outcome was lost
	Settled  int `json:"settled"`  // effects in doubt that a probe could tell the end of
	Unknown  int `json:"unknown"`  // and those of which it could not
	Pruned   int `json:"pruned"`   // effects whose payloads were kept for long enough
}

// New returns a reaper of a log.
func New(log *store.Log, opts *Options) *Reaper {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Every <= 0 {
		o.Every = 30 * time.Second
	}
	if o.ProbeEvery <= 0 {
		o.ProbeEvery = o.Every
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Reaper{log: log, opts: o, tries: map[string]try{}}
}

// Run makes a round every now and then until ctx ends. What cannot be done now is done in a later round.
func (r *Reaper) Run(ctx context.Context) {
	for {
		timer := time.NewTimer(r.opts.Every*9/10 + rand.N(r.opts.Every/5+1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		done, err := r.Round(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.opts.Logger.WarnContext(ctx, "log not looked through to its end", slog.Any("error", err))
		}
		if done != (Done{}) {
			r.opts.Logger.InfoContext(ctx, "log looked through", slog.Int("expired", done.Expired), slog.Int("void", done.Void),
				slog.Int("reminded", done.Reminded), slog.Int("in_doubt", done.InDoubt), slog.Int("settled", done.Settled), slog.Int("unknown", done.Unknown),
				slog.Int("pruned", done.Pruned))
		}
	}
}

// Round looks through the open effects of every tenant once. What fails is told in the error and keeps nothing
// else from being done.
func (r *Reaper) Round(ctx context.Context) (Done, error) {
	var done Done
	tenants, err := r.log.Tenants(ctx)
	if err != nil {
		return done, err
	}
	var failed []error
	for _, tenant := range tenants {
		if err := r.tenant(ctx, tenant, &done); err != nil {
			failed = append(failed, fmt.Errorf("reap tenant %s: %w", tenant, err))
		}
	}
	if err := r.retain(ctx, &done); err != nil {
		failed = append(failed, err)
	}
	r.forget()
	return done, errors.Join(failed...)
}

const (
	// maxPrunePause bounds how rarely the log is pruned.
	maxPrunePause = 24 * time.Hour
	// maxWholePause bounds how rarely that is done from its beginning, and not from what was left: of what failed, lost
	// its payloads and was then begun again.
	maxWholePause = 7 * 24 * time.Hour
	// pruneStretch is how many effects are looked at before it is asked for how long that has been done.
	pruneStretch = 5000
)

// retain prunes what was kept for long enough, ten times in the time that it is kept, or once a day: for a third of
// the time between rounds at most, and in the next round from there.
func (r *Reaper) retain(ctx context.Context, done *Done) error {
	if r.opts.Retention == nil {
		return nil
	}
	keep, now, from := r.opts.Retention(), r.log.Now(), time.Now()
	if keep <= 0 || !r.walks(keep, now) {
		return nil
	}
	for !r.walk.Ended && time.Since(from) < r.opts.Every/3 {
		pruned, err := r.log.Prune(ctx, &store.Pruning{Before: now.Add(-keep), Walk: r.walk, Limit: pruneStretch})
		done.Pruned += int(pruned.Effects)
		if err != nil {
			return err
		}
	}
	if r.walk.Ended {
		r.prune = now.Add(min(keep/10, maxPrunePause))
	}
	return nil
}

// walks begins the next walk through the log when it is time for it, and reports whether one is under way.
func (r *Reaper) walks(keep time.Duration, now time.Time) bool {
	switch {
	case r.walk != nil && !r.walk.Ended:
		return true
	case now.Before(r.prune):
		return false
	case r.walk == nil || !now.Before(r.whole):
		r.walk, r.whole = &store.Walk{}, now.Add(min(keep, maxWholePause))
	default:
		r.walk.Again()
	}
	return true
}

// forget drops the tries of effects that others have settled: those that are in doubt still are tried in time.
func (r *Reaper) forget() {
	now := r.log.Now()
	maps.DeleteFunc(r.tries, func(_ string, t try) bool { return now.Sub(t.next) > r.opts.Every+maxProbePause })
}

const page = 500

func (r *Reaper) tenant(ctx context.Context, tenant string, done *Done) error {
	var failed []error
	for filter := (&store.Filter{Tenant: tenant, Open: true, Writes: true, Limit: page}); ; {
		list, err := r.log.List(ctx, filter)
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		for _, e := range list {
			if err := r.one(ctx, e, done); err != nil {
				failed = append(failed, err)
			}
			if ctx.Err() != nil {
				return errors.Join(append(failed, ctx.Err())...)
			}
		}
		if len(list) < page {
			return errors.Join(failed...)
		}
		filter.Before = list[len(list)-1].Seq
	}
}

func (r *Reaper) one(ctx context.Context, e *effect.Record, done *Done) error {
	now := r.log.Now()
	switch state := e.StateAt(now); {
	case e.State == effect.StateAwaitingApproval && state != effect.StateAwaitingApproval:
		return r.expire(ctx, e, state, done)
	case state == effect.StateAwaitingApproval:
		reminded, err := r.log.Remind(ctx, e)
		if reminded {
			done.Reminded++
		}
		return err
	case e.State == effect.StateClaimed && state == effect.StateInDoubt:
		lost, err := r.log.Lose(ctx, e)
		if err != nil || lost == nil {
			return err
		}
		done.InDoubt++
		return r.probe(ctx, lost, done)
	case state == effect.StateInDoubt:
		return r.probe(ctx, e, done)
	}
	return nil
}

func (r *Reaper) expire(ctx context.Context, e *effect.Record, state effect.State, done *Done) error {
	_, err := r.log.Expire(ctx, e.Tenant, e.ID)
	if _, moved := errors.AsType[*store.ConflictError](err); moved {
		return nil // somebody was first
	}
	if err != nil {
		return err
	}
	if state == effect.StateVoid {
		done.Void++
	} else {
		done.Expired++
	}
	return nil
}

// maxProbePause bounds how rarely an effect is asked about that its probe can say nothing of.
const maxProbePause = time.Hour

func (r *Reaper) probe(ctx context.Context, e *effect.Record, done *Done) error {
	if r.opts.Probe == nil {
		return nil
	}
	t, now := r.tries[e.ID], r.log.Now()
	if now.Before(t.next) {
		return nil
	}
	settled, err := r.opts.Probe(ctx, e)
	if settled {
		delete(r.tries, e.ID)
		done.Settled++
		return err
	}
	t.pause = min(max(2*t.pause, r.opts.ProbeEvery), maxProbePause)
	t.next = now.Add(t.pause)
	r.tries[e.ID] = t
	if errors.Is(err, ErrNoProbe) {
		return nil
	}
	done.Unknown++
	return err
}
