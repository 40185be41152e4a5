package sqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pressly/goose/v3"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// olderFile makes a file as a program of that schema version left it.
func olderFile(t *testing.T, version int64) (path string, db *sql.DB) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "log.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, os.DirFS("migration"), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	return path, db
}

// An older program's effects keep their states, and what is open among them is found.
func TestOpen_OlderFile(t *testing.T) {
	for version := int64(1); version < 3; version++ {
		path, db := olderFile(t, version)
		for i, states := range [][]string{{}, {"committed"}, {"in_doubt"}, {"waiting"}, {"in_doubt", "committed"}, {"failed", "claimed"}} {
			insertOld(t, db, i+1, states...)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		l := openLog(t, path)
		for name, tc := range map[string]struct {
			filter store.Filter
			want   []string
		}{
			"all":       {store.Filter{}, []string{"6", "5", "4", "3", "2", "1"}},
			"open":      {store.Filter{Open: true}, []string{"6", "4", "3", "1"}},
			"in doubt":  {store.Filter{States: []effect.State{effect.StateInDoubt}}, []string{"6", "3", "1"}},
			"committed": {store.Filter{States: []effect.State{effect.StateCommitted}}, []string{"5", "2"}},
		} {
			tc.filter.Tenant = "default"
			if diff := cmp.Diff(tc.want, idsOf(t, l, &tc.filter)); diff != "" {
				t.Errorf("version %d: %s (-want +got)\n%s", version, name, diff)
			}
		}
		if begun, err := beginAsking(l, `{}`); err != nil || begun.Verdict.Action != effect.ActRequest {
			t.Errorf("version %d: Begin = %+v, %v", version, begun, err)
		}
		assertIntact(t, path)
	}
}

func idsOf(t *testing.T, l *store.Log, f *store.Filter) (ids []string) {
	t.Helper()
	records, err := l.List(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids
}

// insertOld inserts an effect of nobody's that was claimed an hour ago and moved on since.
func insertOld(t *testing.T, db *sql.DB, seq int, states ...string) {
	t.Helper()
	at := time.Now().Add(-time.Hour).UnixMicro()
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(context.Background(), query, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`
		INSERT INTO effect (seq, id, tenant, principal, session, trace, server, tool, tier, rule, scope, generation, key, run, occurrence,
		       args_digest, complete, policy, source, lookalike_of, created_at, state, owner, arguments)
		VALUES (?1, ?1, 'default', '', '', '', 's', 't', 'irreversible', 'none', '', 1, '', '', '',
		       zeroblob(32), zeroblob(32), '', '', '', ?2, 'claimed', 'gone', '{}')`, seq, at)
	for i, state := range states {
		exec(`
			INSERT INTO transition (effect, ordinal, attempt, state, at, owner, by, reason, continuation, answer_kind, is_error)
			VALUES (?, ?, 1, ?, ?, 'gone', '', '', '', '', 0)`, seq, i+1, state, at)
	}
}

// The rows of a log are not edited but to take payloads away.
func TestSchema_RowsAreFinal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	l := openLog(t, path)
	begun, err := beginAsking(l, `{}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []effect.Decision{
		{Kind: effect.DecideEdit, By: "user:u", Reason: "r", Arguments: []byte(`{"a":1}`)}, {Kind: effect.DecideApprove, By: "user:u"},
	} {
		if _, err := l.Decide(t.Context(), &store.DecideParams{Tenant: "default", ID: begun.Record.ID, Decision: d}); err != nil {
			t.Fatal(err)
		}
	}
	g, err := l.Grant(t.Context(), effect.Grant{Tenant: "default", Kind: effect.GrantTool, Server: "s", Tool: "t", By: "user:u"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Revoke(t.Context(), "default", g.ID, "user:u", "over"); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for query, allowed := range map[string]bool{
		`UPDATE effect SET approval = NULL, decide_until = NULL`:    false,
		`UPDATE effect SET decide_until = 1`:                        false,
		`UPDATE effect SET approval = x'', arguments = x''`:         false,
		`UPDATE transition SET approval = x'7b7d'`:                  false,
		`UPDATE transition SET edited = x'7b7d'`:                    false,
		`UPDATE transition SET edited = NULL WHERE edited NOT NULL`: false,
		`UPDATE transition SET use_until = 1`:                       false,
		`UPDATE transition SET state = 'denied'`:                    false,
		`UPDATE transition SET answer = x''`:                        false, // there is none
		`UPDATE standing_grant SET tool = 'other'`:                  false,
		`UPDATE revocation SET at = 1`:                              false,
		`UPDATE transition SET edited = x'' WHERE edited NOT NULL`:  true,
		`UPDATE effect SET arguments = x''`:                         true,
	} {
		if _, err := db.ExecContext(t.Context(), query); (err == nil) != allowed {
			t.Errorf("%s: %v", query, err)
		}
	}
}
