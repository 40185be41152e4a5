package pgcluster_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/internal/pgcluster"
)

// unflushed makes databases sooner.
var unflushed = &pgcluster.Options{Settings: map[string]string{"fsync": "off"}}

// prepare makes something of every kind that has an owner.
func prepare(ctx context.Context, url string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	_, err = conn.Exec(ctx, `
		CREATE SCHEMA made;
		CREATE TYPE made.kind AS ENUM ('one');
		CREATE TABLE made.thing (n serial PRIMARY KEY, kind made.kind);
		ALTER TABLE made.thing ENABLE ROW LEVEL SECURITY;
		CREATE POLICY anyone ON made.thing USING (true);
		GRANT SELECT ON made.thing TO PUBLIC;
		CREATE FUNCTION made.twice(n integer) RETURNS integer LANGUAGE sql AS 'SELECT 2 * n';
		INSERT INTO made.thing (kind) VALUES ('one')`)
	return err
}

func newTemplate(t *testing.T, c *pgcluster.Cluster) *pgcluster.Template {
	t.Helper()
	template, err := pgcluster.CreateTemplate(t.Context(), c.URL(), prepare)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

func drop(t *testing.T, template *pgcluster.Template) {
	t.Helper()
	if err := template.Drop(t.Context()); err != nil {
		t.Error(err)
	}
}

// named counts the databases and roles of the server that have such names.
func named(t *testing.T, c *pgcluster.Cluster, like string) int {
	t.Helper()
	return query[int](t, connect(t, c.URL()), `
		SELECT (SELECT count(*) FROM pg_database WHERE datname LIKE '`+like+`') + (SELECT count(*) FROM pg_roles WHERE rolname LIKE '`+like+`')`)
}

func TestTemplate_CopiesAreTheirOwners(t *testing.T) {
	c := newCluster(t, unflushed)
	template := newTemplate(t, c)
	copies := make([]*pgcluster.Database, 8)
	var all sync.WaitGroup
	for i := range copies {
		all.Go(func() {
			var err error
			if copies[i], err = template.Copy(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for i, db := range copies {
		owner := connect(t, db.URL)
		foreign := query[int](t, owner, `
			SELECT count(*)
			FROM pg_shdepend d
			JOIN pg_database b ON b.oid = d.dbid AND b.datname = current_database()
			WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid <> current_user::regrole`)
		if foreign != 0 {
			t.Errorf("copy %d: %d dependencies on other roles", i, foreign)
		}
		execute(t, owner, "ALTER TABLE made.thing FORCE ROW LEVEL SECURITY; ALTER TYPE made.kind ADD VALUE 'two'; DROP FUNCTION made.twice")
		execute(t, owner, "INSERT INTO made.thing (kind) VALUES ('two')")
		if n := query[int](t, owner, "SELECT sum(n) FROM made.thing"); n != 1+2 {
			t.Errorf("copy %d: the sum is %d, want that of its own rows", i, n)
		}
	}
	drop(t, template)
	if n := named(t, c, `undolog\_template%`); n != 0 {
		t.Errorf("%d databases and roles of the template are left", n)
	}
	for _, db := range copies {
		if err := db.Drop(t.Context(), c.URL()); err != nil {
			t.Error(err)
		}
	}
}

// The server ends the session of a process that was killed, too.
func TestTemplate_OfAProcessThatEndedIsRemovedByTheNext(t *testing.T) {
	c := newCluster(t, unflushed)
	lives, ended := newTemplate(t, c), newTemplate(t, c)
	const newest = `application_name = (SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'undolog\_template%' ORDER BY backend_start DESC LIMIT 1)`
	execute(t, connect(t, c.URL()), "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE "+newest)
	if n := named(t, c, `undolog\_template%`); n != 4 {
		t.Fatalf("%d databases and roles of templates, want those of two", n)
	}
	next := newTemplate(t, c)
	if n := named(t, c, `undolog\_template%`); n != 4 {
		t.Errorf("%d databases and roles of templates, want those of two", n)
	}
	if _, err := ended.Copy(t.Context()); err == nil {
		t.Error("the template of a process that has ended is still there")
	}
	if _, err := lives.Copy(t.Context()); err != nil {
		t.Error(err)
	}
	drop(t, lives)
	drop(t, next)
}

func TestTemplate_ThatCannotBePreparedLeavesNothing(t *testing.T) {
	c := newCluster(t, unflushed)
	reason := errors.New("no")
	_, err := pgcluster.CreateTemplate(t.Context(), c.URL(), func(context.Context, string) error { return reason })
	if !errors.Is(err, reason) {
		t.Errorf("CreateTemplate = %v, want why", err)
	}
	if n := named(t, c, "undolog%"); n != 0 {
		t.Errorf("%d databases and roles are left", n)
	}
}
