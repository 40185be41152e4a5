package postgres_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/drivertest"
	"github.com/undolog/undolog/store/postgres"
)

func TestTenants_InterleavedOnFewConnections(t *testing.T) {
	db := migrated.New(t)
	d := open(t, withParameter(t, db.URL, "pool_max_conns", "4"), nil)
	const tenants = 20
	tenant := func(i int) string { return fmt.Sprint("tenant-", i%tenants) }
	ids := make([]string, tenants)
	for i := range tenants {
		ids[i] = claimed(t, d, keyed(t, tenant(i), "same")).Effect
	}
	var foreign atomic.Int32
	share(drivertest.Scale(10_000), 32, func(i int) {
		switch i % 4 {
		case 0: // a list of its own
			records, err := d.Effects(t.Context(), &store.Filter{Tenant: tenant(i), Limit: 10})
			if err != nil {
				t.Error(err)
			}
			for _, r := range records {
				if r.Tenant != tenant(i) {
					foreign.Add(1)
				}
			}
		case 1: // an effect of another
			if r, err := d.Effect(t.Context(), tenant(i), ids[(i+1)%tenants]); err == nil {
				t.Errorf("%s sees %s of %s", tenant(i), r.ID, r.Tenant)
			}
		case 2: // one key, another tenant's effect each
			begun, err := d.Begin(t.Context(), keyed(t, tenant(i), "same"))
			if err != nil || begun.Record.ID != ids[i%tenants] {
				t.Errorf("Begin = %+v, %v", begun, err)
			}
		case 3: // grouped with others'
			begun, err := d.Begin(t.Context(), keyed(t, tenant(i), fmt.Sprint(i)))
			if err != nil || begun.Claim == nil || begun.Record.Tenant != tenant(i) {
				t.Errorf("Begin = %+v, %v", begun, err)
				return
			}
			if _, err := d.Append(t.Context(), tenant(i), commit(begun.Claim)); err != nil {
				t.Errorf("Append: %v", err)
			}
		}
	})
	if n := foreign.Load(); n > 0 {
		t.Errorf("%d rows of other tenants", n)
	}
	known, err := d.Tenants(t.Context())
	if err != nil || len(known) != tenants {
		t.Errorf("Tenants = %v, %v", known, err)
	}
}

func TestTenants_WithoutATenantNothingIsSeen(t *testing.T) {
	db := migrated.New(t)
	d := open(t, db.URL, nil)
	claim := writesEverything(t, d)
	conn := connect(t, db.URL)
	tables := []string{"effect", "transition", "delivery", "event", "tool", "approval", "standing_grant", "revocation", "spend", "open_move", "mark"}
	sees := func() (n int) {
		t.Helper()
		for _, table := range tables {
			var rows int
			if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM undolog.`+table).Scan(&rows); err != nil {
				t.Fatal(err)
			}
			n += rows
		}
		return n
	}
	if n := sees(); n != 0 {
		t.Errorf("%d rows are seen without a tenant", n)
	}
	for _, table := range tables {
		var b pgx.Batch
		b.Queue(`SELECT set_config('undolog.tenant', 'default', true)`)
		var rows int
		b.Queue(`SELECT count(*) FROM undolog.` + table).QueryRow(func(row pgx.Row) error { return row.Scan(&rows) })
		if err := conn.SendBatch(t.Context(), &b).Close(); err != nil || rows == 0 {
			t.Errorf("%d rows of %s as the tenant, %v", rows, table, err)
		}
	}
	if n := sees(); n != 0 { // the setting is '' now
		t.Errorf("%d rows are seen after the tenant's transaction", n)
	}
	if _, err := conn.Exec(t.Context(), `INSERT INTO undolog.delivery (effect, at, tenant) VALUES ($1, now(), 'default')`, claim.Effect); err == nil {
		t.Error("a row was written without a tenant")
	}
	if _, err := conn.Exec(t.Context(), `SELECT set_config('undolog.tenant', 'other', false)`); err != nil {
		t.Fatal(err)
	}
	if n := sees(); n != 0 {
		t.Errorf("%d rows of another tenant are seen", n)
	}
}

// writesEverything leaves rows of the default tenant in every table, and returns a claim that was settled.
func writesEverything(t *testing.T, d *postgres.Driver) *effect.Claim {
	t.Helper()
	edited := approvalOf(t, requested(t, d, under(t, asking(), "asked")))
	edited.Approval.Arguments = []byte(`{"key":"edited"}`)
	if _, err := d.Append(t.Context(), "default", edited); err != nil {
		t.Fatal(err)
	}
	grant := &effect.Grant{ID: newID(t), Tenant: "default", Kind: effect.GrantTool, Server: "payments", Tool: "charge", By: "user:u"}
	if err := d.Grant(t.Context(), grant); err != nil {
		t.Fatal(err)
	}
	claimed(t, d, under(t, asking(), "granted"))
	if _, done, err := d.Revoke(t.Context(), "default", grant.ID, "user:u", "over"); err != nil || !done {
		t.Fatalf("Revoke = %v, %v", done, err)
	}
	claim := claimed(t, d, under(t, asking(limited), "limited"))
	if _, err := d.Append(t.Context(), "default", commit(claim)); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(t.Context(), &store.Notes{
		Deliveries: []store.Delivery{{Tenant: "default", Effect: claim.Effect, At: time.Now()}},
		Events:     []effect.Event{{Tenant: "default", Kind: "k"}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.LearnTool(t.Context(), &store.Tool{Tenant: "default", Server: "payments", Name: "charge", Definition: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	fillBeyondMark(t, d, "default")
	if _, err := d.Effects(t.Context(), &store.Filter{Tenant: "default", Open: true}); err != nil {
		t.Fatal(err)
	}
	return claim
}

func TestOpen_RefusesRolesThatPoliciesDoNotBind(t *testing.T) {
	db := pgtest.New(t)
	open(t, db.URL, nil) // migrates
	admin := connect(t, db.AdminURL)
	refused := func(t *testing.T, url, fix string) {
		t.Helper()
		d, err := postgres.Open(t.Context(), url, nil)
		if err == nil {
			d.Close()
			t.Fatal("Open took it")
		}
		assertContains(t, err.Error(), fix)
	}
	t.Run("a superuser", func(t *testing.T) { refused(t, db.AdminURL, "CREATE ROLE undolog") })
	t.Run("one that bypasses them", func(t *testing.T) {
		execute(t, admin, `ALTER ROLE `+db.Name+` BYPASSRLS`)
		refused(t, db.URL, "ALTER ROLE "+db.Name+" NOBYPASSRLS")
		execute(t, admin, `ALTER ROLE `+db.Name+` NOBYPASSRLS`)
	})
	t.Run("an owner on whom they are not forced", func(t *testing.T) {
		execute(t, admin, `ALTER TABLE undolog.effect NO FORCE ROW LEVEL SECURITY`)
		refused(t, db.URL, "ALTER TABLE undolog.effect ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
		execute(t, admin, `ALTER TABLE undolog.effect FORCE ROW LEVEL SECURITY`)
	})
	t.Run("a server that forgets what it has confirmed", func(t *testing.T) {
		execute(t, admin, `ALTER ROLE `+db.Name+` SET synchronous_commit = off`)
		refused(t, db.URL, "SET synchronous_commit = on")
		execute(t, admin, `ALTER ROLE `+db.Name+` RESET synchronous_commit`)
	})
	t.Run("one that only reads", func(t *testing.T) {
		execute(t, admin, `ALTER ROLE `+db.Name+` SET default_transaction_read_only = on`)
		refused(t, db.URL, "SET default_transaction_read_only = off")
		execute(t, admin, `ALTER ROLE `+db.Name+` RESET default_transaction_read_only`)
	})
	t.Run("one on whom they make errors", func(t *testing.T) {
		execute(t, admin, `ALTER ROLE `+db.Name+` SET row_security = off`)
		refused(t, db.URL, "SET row_security = on")
		execute(t, admin, `ALTER ROLE `+db.Name+` RESET row_security`)
	})
	t.Run("another isolation", func(t *testing.T) {
		execute(t, admin, `ALTER ROLE `+db.Name+` SET default_transaction_isolation = 'serializable'`)
		refused(t, db.URL, "SET default_transaction_isolation = 'read committed'")
		execute(t, admin, `ALTER ROLE `+db.Name+` RESET default_transaction_isolation`)
	})
	open(t, db.URL, nil)
}

func TestOpen_aRoleThatWritesTimesInAnotherWay(t *testing.T) {
	db := migrated.New(t)
	execute(t, connect(t, db.URL), `ALTER ROLE `+db.Name+` SET DateStyle = 'SQL, DMY'`)
	d := open(t, withParameter(t, db.URL, "default_query_exec_mode", "exec"), nil)
	claimed(t, d, keyed(t, "default", "a"))
	if _, err := postgres.Status(t.Context(), db.URL); err != nil {
		t.Error(err)
	}
}

func TestSchema_RowsAreFinal(t *testing.T) {
	db := migrated.New(t)
	d := open(t, db.URL, nil)
	claim := writesEverything(t, d)
	conn := connect(t, db.URL)
	execute(t, conn, `SELECT set_config('undolog.tenant', 'default', false)`)
	for _, sql := range []string{
		`UPDATE undolog.effect SET tool = 'other'`,
		`UPDATE undolog.effect SET arguments = 'x'`,
		`UPDATE undolog.transition SET state = 'failed'`,
		`UPDATE undolog.transition SET answer = 'x'`,
		`UPDATE undolog.approval SET document = '{}'`,
		`UPDATE undolog.approval SET edited = 'x'`,
		`UPDATE undolog.standing_grant SET expires_at = NULL`,
		`UPDATE undolog.revocation SET at = now()`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s: it was done", sql)
		}
	}
	assertHistory(t, d, claim, effect.StateClaimed, effect.StateCommitted)
}

// What a table's CHECKs would say is said by its policy; see migration 4.
func TestSchema_UnsoundRowsAreRefused(t *testing.T) {
	db := migrated.New(t)
	d := open(t, db.URL, nil)
	claim := claimed(t, d, keyed(t, "default", "k"))
	if _, err := d.Append(t.Context(), "default", commit(claim)); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, db.URL)
	execute(t, conn, `SELECT set_config('undolog.tenant', 'default', false)`)
	for table, rows := range map[string]struct {
		sound   string
		unsound []string
	}{
		"effect": {`id = gen_random_uuid(), generation = generation + 1`, []string{
			`tenant = ''`, `generation = 0`, `state = 'committed'`, `signature = 'short'`, `signature = NULL`, `rule = 'none'`,
			`window_signature = 'short'`, `args_digest = 'short'`, `complete = 'short'`, `caller = NULL`, `tier = 'read'`, `run = 'r'`, `run_hash = 1`,
		}},
		"transition": {`ordinal = ordinal + 1`, []string{
			`tenant = ''`, `ordinal = 0`, `attempt = 0`, `answer_kind = 'other'`, `answer_kind = ''`, `answer = NULL`, `position = 1`, `caller = 1`,
			`state = 'claimed', position = 1`,
		}},
	} {
		insert := `INSERT INTO undolog.` + table + ` SELECT * FROM changed`
		for _, change := range append([]string{""}, rows.unsound...) {
			execute(t, conn, `CREATE TEMPORARY TABLE changed AS SELECT * FROM undolog.`+table+` LIMIT 1`)
			execute(t, conn, `UPDATE changed SET `+rows.sound)
			if change == "" {
				execute(t, conn, insert)
			} else {
				execute(t, conn, `UPDATE changed SET `+change)
				const policyViolation = "42501"
				_, err := conn.Exec(t.Context(), insert)
				if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || refusal.Code != policyViolation {
					t.Errorf("%s with %s: %v", table, change, err)
				}
			}
			execute(t, conn, `DROP TABLE changed`)
		}
	}
}
