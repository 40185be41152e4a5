package postgres_test

import (
	"database/sql"
	_ "embed"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
)

//go:embed testdata/version1.sql
var version1 string

// oldProgram is a program of schema version 1, all of whose statements were prepared under it.
type oldProgram struct {
	t    *testing.T
	conn *pgx.Conn
}

// startOld makes a database of schema version 1 with a program on it.
func startOld(t *testing.T, url string) *oldProgram {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	migrateTo(t, db, 1)
	p := &oldProgram{t: t, conn: connect(t, url)}
	for _, part := range strings.Split(version1, "\n== ")[1:] {
		name, statement, _ := strings.Cut(part, "\n")
		if _, err := p.conn.Prepare(t.Context(), name, statement); err != nil {
			t.Fatalf("prepare %s: %v", name, err)
		}
	}
	execute(t, p.conn, `INSERT INTO undolog.owner (id, until) VALUES ('old', now() + interval '1 hour')`)
	execute(t, p.conn, `INSERT INTO undolog.tenant (id) VALUES ('default')`)
	return p
}

func migrateTo(t *testing.T, db *sql.DB, version int64) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), `CREATE SCHEMA undolog`); err != nil {
		t.Fatal(err)
	}
	versions, err := database.NewStore(database.DialectPostgres, "undolog.goose_db_version")
	if err != nil {
		t.Fatal(err)
	}
	provider, err := goose.NewProvider("", db, os.DirFS("migration"), goose.WithStore(versions), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
}

// run runs one statement as the program does, and returns how many rows it had and the first one.
func (p *oldProgram) run(name string, args ...any) (n int, first []any) {
	p.t.Helper()
	var b pgx.Batch
	b.Queue(`SELECT set_config('undolog.tenant', 'default', true), set_config('plan_cache_mode', 'force_generic_plan', true)`)
	b.Queue(name, args...).Query(func(rows pgx.Rows) error {
		for ; rows.Next(); n++ {
			if values, err := rows.Values(); err != nil {
				return err
			} else if first == nil {
				first = values
			}
		}
		return rows.Err()
	})
	if err := p.conn.SendBatch(p.t.Context(), &b).Close(); err != nil {
		p.t.Fatalf("%s: %v", name, err)
	}
	return n, first
}

// claim records the first claim of a call.
func (p *oldProgram) claim(b *store.Begin) {
	p.t.Helper()
	id, c := b.Identity, b.Call
	n, _ := p.run("insert_effect", "default", nil, b.ID, 0, 7, nil, nil, 600_000_000, nil, 1, id.Signature[:], id.Window[:], id.Arguments[:], id.Complete[:],
		c.Principal, "", "", c.Server, c.Tool, "irreversible", string(id.Rule), id.Scope, c.Key, "", "", "", "test", "", "old", []byte(c.Arguments), false)
	if n != 1 {
		p.t.Fatalf("%d rows inserted", n)
	}
}

// settle ends a claim of its own.
func (p *oldProgram) settle(id string, ordinal int, state effect.State, kind string, answer []byte) {
	p.t.Helper()
	if n, _ := p.run("settle", "default", nil, id, ordinal, 1, nil, string(state), "old", "", "", "", kind, false, answer); n != 1 {
		p.t.Fatalf("%d rows inserted", n)
	}
}

// stateColumn is the column of selectRecord that has the state of the last transition.
const stateColumn = 30

func TestMigrate_ProgramsOfVersionOneGoOnBeside(t *testing.T) {
	db := pgtest.New(t)
	old := startOld(t, db.URL)
	early := keyed(t, "default", "early")
	old.claim(early)

	d := open(t, db.URL, nil) // migrates
	old.settle(early.ID, 1, effect.StateCommitted, "result", []byte(`{"n":1}`))
	late, waiting := keyed(t, "default", "late"), keyed(t, "default", "waiting")
	old.claim(late)
	old.claim(waiting)
	old.settle(waiting.ID, 1, effect.StateWaiting, "", nil)

	t.Run("what they record is known", func(t *testing.T) {
		if begun, err := d.Begin(t.Context(), keyed(t, "default", "early")); err != nil || begun.Verdict.Action != effect.ActReplay {
			t.Errorf("Begin = %+v, %v", begun, err)
		}
		if begun, err := d.Begin(t.Context(), keyed(t, "default", "late")); err != nil || begun.Verdict.Action != effect.ActJoin {
			t.Errorf("Begin = %+v, %v", begun, err)
		}
	})
	t.Run("what they leave open is listed", func(t *testing.T) {
		fillBeyondMark(t, d, "default")
		open := &store.Filter{Tenant: "default", Open: true}
		if diff := cmp.Diff([]string{waiting.ID, late.ID}, openIDs(t, d, open)); diff != "" {
			t.Errorf("open (-want +got)\n%s", diff)
		}
		late2 := keyed(t, "default", "late 2")
		old.claim(late2)
		fillBeyondMark(t, d, "default")
		openIDs(t, d, open)
		old.settle(late2.ID, 1, effect.StateInDoubt, "", nil)
		if diff := cmp.Diff([]string{late2.ID, waiting.ID, late.ID}, openIDs(t, d, open)); diff != "" {
			t.Errorf("open (-want +got)\n%s", diff)
		}
	})
	t.Run("they hold back what awaits approval, and lose none of it", func(t *testing.T) {
		p := under(t, asking(), "asked")
		r := requested(t, d, p)
		if _, row := old.run("record", r.ID); row[24] != string(effect.StateAwaitingApproval) || row[stateColumn] != nil {
			t.Errorf("they read %v, %v", row[24], row[stateColumn])
		}
		edit, err := r.Decided(&effect.Decision{Kind: effect.DecideEdit, By: "user:u", Reason: "less", Arguments: []byte(`{ "key": "less" }`)}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if r, err = d.Append(t.Context(), "default", edit); err != nil {
			t.Fatal(err)
		}
		if _, err = d.Append(t.Context(), "default", approvalOf(t, r)); err != nil {
			t.Fatal(err)
		}
		claim := claimed(t, d, under(t, asking(), "asked"))
		lost := &effect.Transition{Effect: claim.Effect, Ordinal: claim.Ordinal + 1, Attempt: 1, State: effect.StateInDoubt, Owner: claim.Owner}
		if _, err := d.Append(t.Context(), "default", lost); err != nil {
			t.Fatal(err)
		}
		n, _ := old.run("move", nil, claim.Effect, claim.Ordinal+2, 1, nil, nil, nil, false, "committed", "", "user:u", "seen there", "", "result", []byte(`{}`),
			[]string{"claimed", "waiting", "in_doubt"})
		if n != 1 {
			t.Fatalf("%d rows inserted", n)
		}
		if r, err = d.Effect(t.Context(), "default", claim.Effect); err != nil {
			t.Fatal(err)
		}
		if got := string(r.Executed()); got != `{ "key": "less" }` || r.State != effect.StateCommitted || !r.Approval.IsApproved() {
			t.Errorf("%s by %s, approval %+v", got, r.State, r.Approval)
		}
	})
	t.Run("they prune, and what they know nothing of is pruned after them", func(t *testing.T) {
		records, err := d.Effects(t.Context(), &store.Filter{Tenant: "default", States: []effect.State{effect.StateCommitted}, Tool: "charge"})
		if err != nil || len(records) != 2 {
			t.Fatalf("%d effects, %v", len(records), err)
		}
		ids := []string{records[0].ID, records[1].ID}
		for _, name := range []string{"prune_effect", "prune_transition"} {
			if n, _ := old.run(name, ids); n != 2 {
				t.Errorf("%s: %d rows", name, n)
			}
		}
		if n, err := d.Prune(t.Context(), &store.Pruning{Before: time.Now().Add(time.Hour)}); err != nil || n.Effects == 0 {
			t.Errorf("Prune = %+v, %v", n, err)
		}
		for _, id := range ids {
			if r, err := d.Effect(t.Context(), "default", id); err != nil || len(r.Executed()) != 0 {
				t.Errorf("%s is kept, %v", r.Executed(), err)
			}
		}
	})
}
