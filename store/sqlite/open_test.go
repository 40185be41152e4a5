package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// insertSettled inserts as many effects that were claimed and committed an hour ago.
func insertSettled(tb testing.TB, path string, n int) {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=synchronous(OFF)")
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	at := time.Now().Add(-time.Hour).UnixMicro()
	for _, query := range []string{`
		WITH RECURSIVE n(i) AS (SELECT (SELECT COALESCE(MAX(seq), 0) + 1 FROM effect)
		                        UNION ALL
		                        SELECT i + 1 FROM n WHERE i < (SELECT COALESCE(MAX(seq), 0) FROM effect) + ?1)
		INSERT INTO effect (seq, id, tenant, principal, session, trace, server, tool, tier, rule, scope, signature, window, generation,
		       key, run, occurrence, args_digest, complete, policy, source, lookalike_of, created_at, state, owner, arguments)
		SELECT i, 'settled-' || i, 'default', 'agent:a', '', '', 's', 't', 'irreversible', 'window', 'agent:a', randomblob(32), randomblob(32), 1,
		       '', '', '', randomblob(32), randomblob(32), '', '', '', ?2, 'claimed', 'gone', zeroblob(300)
		FROM n`, `
		INSERT INTO transition (effect, ordinal, attempt, state, at, owner, by, reason, continuation, answer_kind, is_error, answer)
		SELECT seq, 1, 1, 'committed', ?2, 'gone', '', '', '', 'result', 0, zeroblob(300)
		FROM effect
		WHERE id LIKE 'settled-%' AND NOT EXISTS (SELECT 1 FROM transition WHERE effect = seq) AND ?1 > 0`,
	} {
		if _, err := db.ExecContext(context.Background(), query, n, at); err != nil {
			tb.Fatal(err)
		}
	}
}

// What is open is found among many that are not, wherever it lies, by whoever looks, and no longer than it is.
func TestEffects_Open(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	l, other := openLog(t, path), openLog(t, path)
	open := &store.Filter{Tenant: "default", Open: true}
	begin := func(n int, c *effect.Contract) *store.Begun {
		t.Helper()
		begun, err := l.Begin(t.Context(), beginParams(t, c, n))
		if err != nil {
			t.Fatal(err)
		}
		return begun
	}
	settle := func(b *store.Begun, o effect.Outcome) {
		t.Helper()
		if _, err := l.Settle(t.Context(), *b.Claim, irreversible, o); err != nil {
			t.Fatal(err)
		}
	}
	lists := func(when string, want ...string) {
		t.Helper()
		for _, l := range []*store.Log{l, other} {
			if diff := cmp.Diff(want, idsOf(t, l, open)); diff != "" {
				t.Errorf("%s (-want +got)\n%s", when, diff)
			}
		}
	}
	const many = 12_000 // more than two steps
	claimed, doubtful, asked := begin(1, irreversible), begin(2, irreversible), begin(3, asking)
	settle(doubtful, effect.Outcome{Kind: effect.OutcomeLost})
	insertSettled(t, path, many)
	late := begin(4, irreversible)
	lists("among many", late.Record.ID, asked.Record.ID, doubtful.Record.ID, claimed.Record.ID)
	settle(claimed, answer) // its claim went on the account meanwhile
	settle(doubtful, answer)
	lists("after they were settled", late.Record.ID, asked.Record.ID)
	insertSettled(t, path, many)
	lists("among many more", late.Record.ID, asked.Record.ID)
	settle(late, answer)
	if _, err := other.Decide(t.Context(), &store.DecideParams{Tenant: "default", ID: asked.Record.ID, Decision: effect.Decision{
		Kind: effect.DecideDeny, By: "user:u", Reason: "because",
	}}); err != nil {
		t.Fatal(err)
	}
	lists("when nothing is open")
}

// BenchmarkEffects_Pending lists what is open among many effects that are not.
func BenchmarkEffects_Pending(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("effects=%d", n), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "log.db")
			l := openLog(b, path)
			insertSettled(b, path, n)
			for i := range 20 {
				if _, err := l.Begin(b.Context(), beginParams(b, asking, i)); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if list, err := l.Pending(b.Context(), "default", 100); err != nil || len(list) != 20 {
					b.Fatalf("%d effects pending (%v)", len(list), err)
				}
			}
		})
	}
}
