package postgres_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/pgcluster"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/postgres"
)

// A dump of a cluster that has begun many transactions, restored into one that has not, has rows that are yet to come.
func TestOrder_dumpRestoredIntoAYoungerCluster(t *testing.T) {
	older := migrated.New(t)
	was := open(t, older.URL, nil)
	burn(t, older)
	const tenants = 3
	tenant := func(i int) string { return fmt.Sprint("tenant-", i%tenants) }
	for i := range 12 {
		claim := claimed(t, was, keyed(t, tenant(i), fmt.Sprint(i)))
		if i%4 != 3 { // the others stay open
			if _, err := was.Append(t.Context(), tenant(i), commit(claim)); err != nil {
				t.Fatal(err)
			}
		}
		note := effect.Event{Tenant: tenant(i), Kind: effect.EventRefused, Tool: fmt.Sprint(i)}
		if err := was.Write(t.Context(), &store.Notes{Events: []effect.Event{note}}); err != nil {
			t.Fatal(err)
		}
	}
	younger := restore(t, older)
	_, err := postgres.Open(t.Context(), younger.URL, nil)
	if err == nil {
		t.Fatal("Open took rows that are yet to come")
	}
	assertContains(t, err.Error(), "undolog migrate renumber")
	if needed, err := postgres.Renumber(t.Context(), younger.URL); err != nil || !needed {
		t.Fatalf("Renumber = %t, %v", needed, err)
	}
	if needed, err := postgres.Renumber(t.Context(), younger.URL); err != nil || needed {
		t.Errorf("Renumber once more = %t, %v", needed, err)
	}
	is := open(t, younger.URL, nil)
	for i := range tenants {
		for name, f := range map[string]*store.Filter{
			"all":      {Tenant: tenant(i)},
			"open":     {Tenant: tenant(i), Open: true},
			"ordered":  {Tenant: tenant(i), Ordered: true},
			"followed": {Tenant: tenant(i), After: 1, Limit: 2},
		} {
			want := openIDs(t, was, f)
			if name == "followed" { // positions are others
				want = openIDs(t, was, &store.Filter{Tenant: tenant(i), After: oldest(t, was, tenant(i)), Limit: 2})
			}
			if diff := cmp.Diff(want, openIDs(t, is, f)); diff != "" || len(want) == 0 {
				t.Errorf("%s of %s (-before +after)\n%s", name, tenant(i), diff)
			}
		}
		if diff := cmp.Diff(refusals(t, was, tenant(i)), refusals(t, is, tenant(i))); diff != "" {
			t.Errorf("events of %s (-before +after)\n%s", tenant(i), diff)
		}
		last := claimed(t, is, keyed(t, tenant(i), "new")).Effect
		if ids := openIDs(t, is, &store.Filter{Tenant: tenant(i), Limit: 1}); ids[0] != last {
			t.Errorf("the newest of %s is %v, want %s", tenant(i), ids, last)
		}
	}
	if begun, err := is.Begin(t.Context(), keyed(t, tenant(0), "0")); err != nil || begun.Verdict.Action != effect.ActReplay {
		t.Errorf("Begin = %+v, %v", begun, err)
	}
	_, err = connect(t, younger.URL).Exec(t.Context(), `
		SELECT set_config('undolog.tenant', 'tenant-0', false); UPDATE undolog.effect SET seq = seq + 1`)
	if err == nil {
		t.Fatal("effects can be updated afterwards")
	}
	assertContains(t, err.Error(), "effects are never updated")
}

// burn begins more transactions than a new cluster has.
func burn(t *testing.T, db *pgcluster.Database) {
	t.Helper()
	execute(t, connect(t, db.AdminURL), `DO $$ BEGIN FOR i IN 1..5000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`)
}

// restore brings a dump of the database into a cluster of its own.
func restore(t *testing.T, from *pgcluster.Database) *pgcluster.Database {
	t.Helper()
	to := pgtest.NewOn(t, pgtest.NewCluster(t, nil))
	run := func(input []byte, program string, args ...string) []byte {
		path, err := pgcluster.Program(program)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), path, args...)
		var failed bytes.Buffer
		cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &failed
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", program, err, failed.Bytes())
		}
		return out
	}
	dump := run(nil, "pg_dump", "--no-owner", "--no-privileges", "--schema", "undolog", from.AdminURL)
	run(dump, "psql", "--quiet", "--set", "ON_ERROR_STOP=1", to.URL)
	return to
}

// oldest is the position of a tenant's first effect.
func oldest(t *testing.T, d *postgres.Driver, tenant string) int64 {
	t.Helper()
	records, err := d.Effects(t.Context(), &store.Filter{Tenant: tenant})
	if err != nil {
		t.Fatal(err)
	}
	return records[len(records)-1].Seq
}

func refusals(t *testing.T, d *postgres.Driver, tenant string) (tools []string) {
	t.Helper()
	events, err := d.Events(t.Context(), tenant, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range events {
		tools = append(tools, ev.Tool)
	}
	return tools
}
