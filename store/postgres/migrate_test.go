package postgres_test

import (
	"errors"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/internal/pgcluster"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/postgres"
)

func TestMigrate(t *testing.T) {
	t.Run("many at once migrate a fresh database once", func(t *testing.T) {
		db := pgtest.New(t)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := postgres.Migrate(t.Context(), db.URL); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		steps, err := postgres.Status(t.Context(), db.URL)
		if err != nil || len(steps) == 0 {
			t.Fatalf("Status = %v, %v", steps, err)
		}
		for _, s := range steps {
			if !s.Applied || s.AppliedAt.IsZero() {
				t.Errorf("step %+v", s)
			}
		}
	})
	for _, limit := range []string{"idle_in_transaction_session_timeout = '1ms'", "lock_timeout = '1ms'", "statement_timeout = '5ms'"} {
		t.Run("a role with "+limit+" migrates", func(t *testing.T) {
			db := pgtest.New(t)
			execute(t, connect(t, db.AdminURL), `ALTER ROLE `+db.Name+` SET `+limit)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					if err := postgres.Migrate(t.Context(), db.URL); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		})
	}
	t.Run("a role with a limit on time that a pooler keeps is told of it", func(t *testing.T) {
		db := pgtest.New(t)
		execute(t, connect(t, db.AdminURL), `ALTER ROLE `+db.Name+` SET lock_timeout = '1ms'`)
		holder := connect(t, db.AdminURL)
		execute(t, holder, `BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('undolog.migrate', 0))`)
		err := postgres.Migrate(t.Context(), pgtest.NewBouncer(t, db, nil).URL)
		if err == nil {
			t.Fatal("Migrate did not wait for the other")
		}
		assertContains(t, err.Error(), "undolog migrate up with the server's own address")
		execute(t, holder, `ROLLBACK`)
	})
	t.Run("a fresh database has its steps before it", func(t *testing.T) {
		steps, err := postgres.Status(t.Context(), pgtest.New(t).URL)
		if err != nil || len(steps) == 0 || steps[0].Applied {
			t.Errorf("Status = %v, %v", steps, err)
		}
	})
	t.Run("who does not migrate is told what to run", func(t *testing.T) {
		db := pgtest.New(t)
		_, err := postgres.Open(t.Context(), db.URL, &postgres.Options{NoMigrate: true})
		if !errors.Is(err, store.ErrSchema) {
			t.Fatalf("Open = %v, want ErrSchema", err)
		}
		assertContains(t, err.Error(), "undolog migrate up")
	})
	t.Run("who may not migrate is told what to run", func(t *testing.T) {
		db := pgtest.New(t)
		admin := connect(t, db.AdminURL)
		execute(t, admin, `ALTER DATABASE `+db.Name+` OWNER TO CURRENT_USER`)
		_, err := postgres.Open(t.Context(), db.URL, nil)
		execute(t, admin, `ALTER DATABASE `+db.Name+` OWNER TO `+db.Name)
		if !errors.Is(err, store.ErrSchema) {
			t.Fatalf("Open = %v, want ErrSchema", err)
		}
		assertContains(t, err.Error(), "undolog migrate up")
	})
	t.Run("a database that cannot hold every text is refused before anything is made", func(t *testing.T) {
		db := pgtest.New(t)
		admin := connect(t, db.AdminURL)
		latin := db.Name + "_latin"
		execute(t, admin, `CREATE DATABASE `+latin+` OWNER `+db.Name+` TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'`)
		defer execute(t, admin, `DROP DATABASE `+latin+` WITH (FORCE)`)
		u, err := url.Parse(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/" + latin
		err = postgres.Migrate(t.Context(), u.String())
		if err == nil {
			t.Fatal("Migrate took it")
		}
		assertContains(t, err.Error(), "ENCODING 'UTF8'")
		if steps, err := postgres.Status(t.Context(), u.String()); err != nil || steps[0].Applied {
			t.Errorf("Status = %+v, %v", steps, err)
		}
	})
	t.Run("a newer schema is used unless it says no", func(t *testing.T) {
		db := pgtest.New(t)
		open(t, db.URL, nil)
		conn := connect(t, db.URL)
		execute(t, conn, `INSERT INTO undolog.goose_db_version (version_id, is_applied) VALUES (99, true)`)
		claimed(t, open(t, db.URL, nil), keyed(t, "default", "k"))
		if err := postgres.Migrate(t.Context(), db.URL); err != nil {
			t.Errorf("Migrate = %v, want nothing to do", err)
		}
		execute(t, conn, `UPDATE undolog.compatibility SET oldest = 99`)
		if _, err := postgres.Open(t.Context(), db.URL, nil); !errors.Is(err, store.ErrSchema) {
			t.Errorf("Open = %v, want ErrSchema", err)
		}
		if err := postgres.Migrate(t.Context(), db.URL); !errors.Is(err, store.ErrSchema) {
			t.Errorf("Migrate = %v, want ErrSchema", err)
		}
	})
	t.Run("steps of a newer program are told", func(t *testing.T) {
		db := pgtest.New(t)
		open(t, db.URL, nil)
		execute(t, connect(t, db.URL), `INSERT INTO undolog.goose_db_version (version_id, is_applied) VALUES (99, true)`)
		steps, err := postgres.Status(t.Context(), db.URL)
		if err != nil || len(steps) < 2 {
			t.Fatalf("Status = %v, %v", steps, err)
		}
		if last := steps[len(steps)-1]; last.Version != 99 || !last.Applied || last.Name != "" {
			t.Errorf("the last step is %+v, want 99 without a name, applied", last)
		}
	})
}

// What the other tests start from is no other schema, and nobody else's, than a migration makes.
func TestMigrate_aCopyOfItsResultIsTheSame(t *testing.T) {
	fresh, copied := pgtest.New(t), migrated.New(t)
	if err := postgres.Migrate(t.Context(), fresh.URL); err != nil {
		t.Fatal(err)
	}
	want := dumpSchema(t, fresh)
	assertContains(t, want, "CREATE TABLE undolog.effect")
	if diff := cmp.Diff(want, dumpSchema(t, copied)); diff != "" {
		t.Errorf("the schema (-migrated +copied)\n%s", diff)
	}
}

// dumpSchema says all that makes the schema, owners and rights included.
func dumpSchema(t *testing.T, db *pgcluster.Database) string {
	t.Helper()
	path, err := pgcluster.Program("pg_dump")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, "--schema-only", db.AdminURL).Output()
	if err != nil {
		t.Fatalf("pg_dump: %v", err)
	}
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(string(out), db.Name, "its_owner")) {
		if !strings.HasPrefix(line, `\restrict `) && !strings.HasPrefix(line, `\unrestrict `) { // with a secret of each dump
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}
