package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/pgcluster"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/postgres"
	"github.com/undolog/undolog/store/sqlite"
)

// The load: calls with 1 KiB of arguments and 1 KiB of answer.
var (
	padding = strings.Repeat("x", 1000)
	answer  = effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{
		Kind: effect.AnswerResult, Body: []byte(`{"content":[{"type":"text","text":"` + padding + `"}]}`),
	}}
	irreversible = effect.DefaultContract(nil, false) // of a tool of which nothing is known
)

// opener opens the log in a database.
type opener func(ctx context.Context, db *pgcluster.Database) (store.Driver, error)

// onLog makes whole effects, begun and settled. Its calls are made beforehand: hashing belongs to the request
// phase of a call.
type onLog struct {
	log    *store.Log
	params []*store.BeginParams
}

// made numbers the calls of a run, so that each is another one.
var made atomic.Int64

func newParams(keyed bool) (*store.BeginParams, error) {
	n := made.Add(1)
	call := &effect.Call{
		Principal: "agent:bench", Server: "payments", Tool: "charge",
		Arguments: fmt.Appendf(nil, `{"account":"bench","amount":%d,"reference":"%s"}`, n, padding),
	}
	if keyed {
		call.Key = fmt.Sprintf("key-%d", n)
	}
	id, err := irreversible.Identify(call)
	if err != nil {
		return nil, err
	}
	return &store.BeginParams{Call: call, Identity: id, Contract: irreversible}, nil
}

func openLog(ctx context.Context, db *pgcluster.Database, open opener) (*store.Log, error) {
	driver, err := open(ctx, db)
	if err != nil {
		return nil, err
	}
	log, err := store.Open(driver, nil)
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	return log, nil
}

// effects is the way of whole effects on the log that open opens.
func effects(open opener) openWorker {
	return func(ctx context.Context, db *pgcluster.Database, _ int) (worker, error) {
		log, err := openLog(ctx, db, open)
		if err != nil {
			return nil, err
		}
		return &onLog{log: log}, nil
	}
}

func (w *onLog) work(ctx context.Context, callers int, d time.Duration) (*tally, error) {
	return forAWhile(ctx, callers, d, w.prepare, w.effect)
}

func (w *onLog) prepare(n int) (err error) {
	w.params = make([]*store.BeginParams, n)
	for i := range w.params {
		if w.params[i], err = newParams(false); err != nil {
			return err
		}
	}
	return nil
}

// The parts of an effect, and its replay, are timed under these names.
const (
	beginning = "begin"
	settling  = "settle"
)

func (w *onLog) effect(ctx context.Context, i int, times *stopwatch) error {
	return wholeEffect(ctx, w.log, w.params[i], times)
}

func wholeEffect(ctx context.Context, log *store.Log, p *store.BeginParams, times *stopwatch) error {
	started := time.Now()
	begun, err := log.Begin(ctx, p)
	if err != nil {
		return err
	}
	if begun.Claim == nil {
		return fmt.Errorf("begin effect: not claimed: %s", begun.Verdict.Action)
	}
	times.since(beginning, started)
	started = time.Now()
	_, err = log.Settle(ctx, *begun.Claim, irreversible, answer)
	times.since(settling, started)
	return err
}

func (w *onLog) close() error { return w.log.Close() }

// replays begins calls that are settled, over and over.
type replays struct {
	log    *store.Log
	params []*store.BeginParams
}

const replayed = 1000 // different calls

// replay is the way of it. The log that replays is another one than that which has settled.
func replay(open opener) openWorker {
	return func(ctx context.Context, db *pgcluster.Database, _ int) (worker, error) {
		params, err := finished(ctx, db, open)
		if err != nil {
			return nil, err
		}
		log, err := openLog(ctx, db, open)
		if err != nil {
			return nil, err
		}
		return &replays{log, params}, nil
	}
}

// finished makes the effects that are replayed.
func finished(ctx context.Context, db *pgcluster.Database, open opener) (params []*store.BeginParams, err error) {
	log, err := openLog(ctx, db, open)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	params = make([]*store.BeginParams, replayed)
	for i := range params {
		if params[i], err = newParams(true); err != nil {
			return nil, err
		}
	}
	_, err = share(ctx, replayed, 64, func(ctx context.Context, i int, times *stopwatch) error {
		return wholeEffect(ctx, log, params[i], times)
	})
	return params, err
}

func (w *replays) work(ctx context.Context, callers int, d time.Duration) (*tally, error) {
	return forAWhile(ctx, callers, d, nothing, w.replay)
}

func (w *replays) replay(ctx context.Context, i int, _ *stopwatch) error {
	begun, err := w.log.Begin(ctx, w.params[i%replayed])
	if err != nil {
		return err
	}
	if begun.Verdict.Action != effect.ActReplay {
		return fmt.Errorf("begin effect: not replayed: %s", begun.Verdict.Action)
	}
	return nil
}

func (w *replays) close() error { return w.log.Close() }

// onSQLite opens a log in a new file, which is removed when the run is over.
func (b *bench) onSQLite(ctx context.Context, _ *pgcluster.Database) (store.Driver, error) {
	dir, err := os.MkdirTemp(b.dir, "sqlite-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	return sqlite.Open(ctx, filepath.Join(dir, "log.db"), nil)
}

func onPostgres(ctx context.Context, db *pgcluster.Database) (store.Driver, error) {
	return postgres.Open(ctx, db.URL, nil)
}

// bounced is a way whose database is reached through PgBouncer.
func bounced(open openWorker) openWorker {
	return func(ctx context.Context, db *pgcluster.Database, callers int) (worker, error) {
		bouncer, err := pgcluster.NewBouncer(ctx, db, nil)
		if err != nil {
			return nil, err
		}
		through := *db
		through.URL = bouncer.URL
		w, err := open(ctx, &through, callers)
		if err != nil {
			return nil, errors.Join(err, bouncer.Close())
		}
		return &behindBouncer{w, bouncer}, nil
	}
}

type behindBouncer struct {
	worker
	bouncer *pgcluster.Bouncer
}

func (w *behindBouncer) close() error { return errors.Join(w.worker.close(), w.bouncer.Close()) }
