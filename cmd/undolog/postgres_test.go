package main

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/postgres"
)

func TestRun_onPostgres(t *testing.T) {
	db := pgtest.New(t)
	saying := func(code int, want string, args ...string) {
		t.Helper()
		out, got := said(t, append([]string{"--db", db.URL}, args...)...)
		if got != code || !strings.Contains(out, want) {
			t.Errorf("%v: exit code %d, want %d; said %q, want in it %q", args, got, code, out, want)
		}
	}
	for _, args := range [][]string{{"log"}, {"pending"}, {"show", missing}, {"resolve", missing, "--committed"}, {"again", missing}} {
		saying(exitSchema, "undolog migrate up", args...)
	}
	saying(exitSchema, "missing", "migrate", "status")
	saying(exitOK, "is at version", "migrate", "up")
	saying(exitOK, "is at version", "migrate", "up")
	saying(exitOK, "0001_", "migrate", "status")
	saying(exitOK, "needs no other numbers", "migrate", "renumber")
	saying(exitOK, "no effects of tenant default in postgres://", "log")
	saying(exitOK, "nothing of tenant default is pending", "pending")
	saying(exitNotFound, `"undolog log"`, "show", missing)
	saying(exitNotFound, `"undolog log"`, "again", missing)
}

func TestMigrate_onSQLite(t *testing.T) {
	db := t.TempDir() + "/log.db"
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"migrate", "status"}, exitFailed, "there is no effect log"},
		{[]string{"migrate", "up"}, exitOK, "is at version"},
		{[]string{"migrate", "status"}, exitOK, "0001_"},
		{[]string{"migrate", "renumber"}, exitUsage, "is a file"},
	} {
		if out, code := said(t, append(c.args, "--db", db)...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit code %d, want %d; said %q, want in it %q", c.args, code, c.code, out, c.want)
		}
	}
}

// Whatever is wrong with the address, what to do is said, and no part of a password.
func TestRun_refusedAddresses(t *testing.T) {
	db := pgtest.New(t)
	changed := func(change func(u *url.URL)) string {
		u, err := url.Parse(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		change(u)
		return u.String()
	}
	for name, c := range map[string]struct {
		address string
		code    int
		want    string
	}{
		"a password that is not the role's": {changed(func(u *url.URL) { u.User = url.UserPassword(db.Name, "canary") }), exitFailed, "PGPASSWORD"},
		"no such database":                  {changed(func(u *url.URL) { u.Path = "/nowhere" }), exitFailed, "CREATE DATABASE"},
		"nobody listens":                    {"postgres://u:canary@127.0.0.1:1/x", exitFailed, "does PostgreSQL run there"},
		"a slash in the password":           {"postgres://u:canary/1@127.0.0.1:5432/x", exitUsage, "percent-encoding"},
		"a @ in the password":               {"postgres://u:1@canary@127.0.0.1:1/x", exitUsage, "percent-encoding"},
		"libpq's words":                     {"host=127.0.0.1 user=u password=canary dbname=x", exitUsage, "want postgres://"},
		"no host":                           {"postgres:u:canary@127.0.0.1/x", exitUsage, "want postgres://"},
		"an unknown pool setting's value":   {"postgres://u@127.0.0.1:1/x?password=canary&pool_max_conns=many", exitUsage, "pool_max_conns"},
		"a password as a parameter":         {"postgres://u@127.0.0.1:1/x?password=canary&sslmode=perhaps", exitUsage, "sslmode"},
		"another database":                  {"mysql://u:canary@127.0.0.1/x", exitUsage, "postgres://"},
		"a superuser":                       {db.AdminURL, exitFailed, "CREATE ROLE"},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := said(t, "--db", c.address, "log")
			if code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want %d; said %q, want in it %q", code, c.code, out, c.want)
			}
			for _, secret := range []string{"canary", db.Password, passwordIn(t, db.AdminURL)} {
				if strings.Contains(out, secret) {
					t.Errorf("it said the password: %q", out)
				}
			}
		})
	}
}

func passwordIn(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	if password == "" {
		t.Fatal("no password in the address")
	}
	return password
}

// A call that took its number early and was written late comes before others in the log: who follows
// it is shown both, and not before their order is known.
func TestFollow_missesNoLateWrite(t *testing.T) {
	db := pgtest.New(t)
	driver, err := postgres.Open(t.Context(), db.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	log, err := store.Open(driver, &store.Options{FlushEvery: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	record := func(tool string) {
		log.RecordRead(&effect.Record{Server: "s", Tool: tool, Rule: effect.RuleNone, State: effect.StateCommitted})
	}
	listed := func(want int) func() bool {
		return func() bool {
			list, err := log.List(t.Context(), &store.Filter{Tenant: effect.DefaultTenant})
			return err == nil && len(list) == want
		}
	}
	record("first")
	await(t, "the first", listed(1))
	late := writeLate(t, db.URL)
	record("second")
	await(t, "the second", listed(2))

	ctx, cancel := context.WithCancel(t.Context())
	var out lockedBuffer
	done := make(chan error, 1)
	go func() {
		p := newLogPrinter(&out, true, log.Now)
		done <- follow(ctx, log, &store.Filter{Tenant: effect.DefaultTenant, Limit: 50}, p)
	}()
	await(t, "what is there", func() bool { return strings.Contains(out.String(), `"second"`) })
	late()
	record("third")
	await(t, "what came late, and after it", func() bool {
		return strings.Contains(out.String(), `"late"`) && strings.Contains(out.String(), `"third"`)
	})
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"first", "late", "second", "third"} {
		if n := strings.Count(out.String(), `"`+tool+`"`); n != 1 {
			t.Errorf("%s was shown %d times", tool, n)
		}
	}
}

// writeLate writes an effect in a transaction that ends when the returned function is called.
func writeLate(t *testing.T, address string) (commit func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec(t.Context(), `SELECT set_config('undolog.tenant', 'default', true)`)
	if err == nil {
		_, err = tx.Exec(t.Context(), `
			CREATE TEMPORARY TABLE late ON COMMIT DROP AS SELECT * FROM undolog.effect;
			UPDATE late SET id = gen_random_uuid(), tool = 'late', seq = pg_current_xact_id()::text::bigint << 16;
			INSERT INTO undolog.effect SELECT * FROM late`)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// await polls for something that others do.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("waited a minute for %s", what)
		case <-tick.C:
		}
	}
}
