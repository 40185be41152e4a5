package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

// The load: whole effects, begun and settled, with 1 KiB of arguments and 1 KiB of answer.
var (
	padding = strings.Repeat("x", 1000)
	answer  = effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{
		Kind: effect.AnswerResult, Body: []byte(`{"content":[{"type":"text","text":"` + padding + `"}]}`),
	}}
	irreversible = &effect.Contract{
		Tier: effect.TierIrreversible, Window: 10 * time.Minute, Repeat: effect.RepeatRun, RepeatError: effect.RepeatReplay,
		Lookalike: effect.RepeatRun, OnToolError: effect.StateCommitted, Timeout: 10 * time.Minute, Lease: 5 * time.Minute,
	}
)

func BenchmarkEffects(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("log/callers=%d", callers), func(b *testing.B) { benchmarkLog(b, callers) })
		b.Run(fmt.Sprintf("bare/callers=%d", callers), func(b *testing.B) { benchmarkBare(b, callers) })
	}
}

// benchmarkLog identifies its calls beforehand: hashing is measured in package effect.
func benchmarkLog(b *testing.B, callers int) {
	l := openLog(b, filepath.Join(b.TempDir(), "log.db"))
	params := make([]*store.BeginParams, b.N)
	for i := range params {
		params[i] = beginParams(b, irreversible, i)
	}
	b.ResetTimer()
	share(b.N, callers, func(i int) {
		begun, err := l.Begin(b.Context(), params[i])
		if err != nil || begun.Claim == nil {
			b.Errorf("Begin = %+v, %v", begun, err)
			return
		}
		if _, err := l.Settle(b.Context(), *begun.Claim, irreversible, answer); err != nil {
			b.Error(err)
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "effects/s")
}

// benchmarkBare writes the same two rows with the same durability and decides nothing.
func benchmarkBare(b *testing.B, callers int) {
	path := filepath.Join(b.TempDir(), "bare.db")
	d, err := sqlite.Open(b.Context(), path, nil) // makes the schema
	if err != nil {
		b.Fatal(err)
	}
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
	w := newBareWriter(b, path)
	params := make([]*store.BeginParams, b.N)
	for i := range params {
		params[i] = beginParams(b, irreversible, i)
	}
	b.ResetTimer()
	share(b.N, callers, func(i int) {
		if err := w.effect(params[i]); err != nil {
			b.Error(err)
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "effects/s")
	close(w.queue)
	<-w.stopped
}

// share runs n pieces of work among a number of callers.
func share(n, callers int, work func(i int)) {
	var next atomic.Int64
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				work(i)
			}
		})
	}
	running.Wait()
}

func openLog(tb testing.TB, path string) *store.Log {
	tb.Helper()
	d, err := sqlite.Open(tb.Context(), path, nil)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := store.Open(d, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
	})
	return l
}

func beginParams(tb testing.TB, c *effect.Contract, i int) *store.BeginParams {
	tb.Helper()
	call := &effect.Call{
		Principal: "agent:bench", Server: "payments", Tool: "charge",
		Arguments: fmt.Appendf(nil, `{"amount":%d,"note":"%s"}`, i, padding),
	}
	id, err := c.Identify(call)
	if err != nil {
		tb.Fatal(err)
	}
	return &store.BeginParams{Call: call, Identity: id, Contract: c}
}

// bareWriter is a writer that groups what is queued, and nothing else.
type bareWriter struct {
	queue   chan bareInsert
	stopped chan struct{}
}

type bareInsert struct {
	transition bool
	args       []any
	done       chan bareResult
}

type bareResult struct {
	seq int64
	err error
}

func newBareWriter(tb testing.TB, path string) *bareWriter {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(FULL)&_pragma=wal_autocheckpoint(1000)")
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	tb.Cleanup(func() { db.Close() })
	conn, err := db.Conn(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	prepare := func(query string) *sql.Stmt {
		s, err := conn.PrepareContext(context.Background(), query)
		if err != nil {
			tb.Fatal(err)
		}
		return s
	}
	w := &bareWriter{queue: make(chan bareInsert, 1024), stopped: make(chan struct{})}
	begin, commit := prepare(`BEGIN IMMEDIATE`), prepare(`COMMIT`)
	first := prepare(`
		INSERT INTO effect (id, tenant, principal, session, trace, server, tool, tier, rule, scope,
		       signature, window, generation, key, run, occurrence, args_digest, complete,
		       policy, source, lookalike_of, created_at, state, owner, lease_until, timeout_at, arguments)
		VALUES (?, 'default', ?, '', '', ?, ?, 'irreversible', 'window', ?,
		       ?, ?, 1, '', '', '', ?, ?,
		       '', '', '', ?, 'claimed', ?, NULL, ?, ?)`)
	second := prepare(`
		INSERT INTO transition (effect, ordinal, attempt, state, at, owner, lease_until, timeout_at,
		       position, by, reason, continuation, answer_kind, is_error, answer)
		VALUES (?, 1, 1, 'committed', ?, ?, NULL, NULL, NULL, '', '', '', 'result', 0, ?)`)
	go w.loop(begin, commit, first, second)
	return w
}

func (w *bareWriter) loop(begin, commit, first, second *sql.Stmt) {
	defer close(w.stopped)
	ctx := context.Background()
	for in := range w.queue {
		group := []bareInsert{in}
	drain:
		for len(group) < 256 {
			select {
			case in := <-w.queue:
				group = append(group, in)
			default:
				break drain
			}
		}
		_, err := begin.ExecContext(ctx)
		results := make([]bareResult, len(group))
		for i, in := range group {
			s := first
			if in.transition {
				s = second
			}
			r, insertErr := s.ExecContext(ctx, in.args...)
			if insertErr != nil {
				results[i].err = insertErr
				continue
			}
			results[i].seq, results[i].err = r.LastInsertId()
		}
		if err == nil {
			_, err = commit.ExecContext(ctx)
		}
		for i, in := range group {
			if err != nil {
				results[i].err = err
			}
			in.done <- results[i]
		}
	}
}

func (w *bareWriter) effect(p *store.BeginParams) error {
	now := time.Now().UnixMicro()
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	done := make(chan bareResult, 1)
	w.queue <- bareInsert{done: done, args: []any{
		id.String(), p.Call.Principal, p.Call.Server, p.Call.Tool, p.Identity.Scope,
		p.Identity.Signature[:], p.Identity.Window[:], p.Identity.Arguments[:], p.Identity.Complete[:],
		now, "owner", now, []byte(p.Call.Arguments),
	}}
	r := <-done
	if r.err != nil {
		return r.err
	}
	w.queue <- bareInsert{transition: true, done: done, args: []any{r.seq, now, "owner", []byte(answer.Answer.Body)}}
	return (<-done).err
}
