package postgres_test

import (
	"strings"
	"testing"

	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store/postgres"
)

func TestOpen(t *testing.T) {
	t.Run("a connection that breaks anywhere on the way is made again", func(t *testing.T) {
		db := pgtest.New(t)
		open(t, db.URL, nil)
		proxy := pgtest.NewProxy(t, withParameter(t, db.URL, "sslmode", "prefer")) // the longest way
		_, before := proxy.Passed()
		open(t, proxy.URL, nil)
		_, after := proxy.Passed()
		for at := int64(1); at < after-before; at += 97 {
			proxy.CutAfter(pgtest.ToClient, at)
			d, err := postgres.Open(t.Context(), proxy.URL, nil)
			proxy.Disarm()
			if err != nil {
				t.Errorf("cut after %d bytes: Open = %v", at, err)
				continue
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("a role is told which rights it lacks", func(t *testing.T) {
		db := pgtest.New(t)
		open(t, db.URL, nil)
		execute(t, connect(t, db.URL), `REVOKE INSERT ON undolog.approval, undolog.spend FROM `+db.Name)
		_, err := postgres.Open(t.Context(), db.URL, nil)
		if err == nil {
			t.Fatal("Open took it")
		}
		assertContains(t, err.Error(), "INSERT ON undolog.approval, INSERT ON undolog.spend")
		assertContains(t, err.Error(), "docs/postgres.md")
	})
	t.Run("a role is told which functions it may not call", func(t *testing.T) {
		db := pgtest.New(t)
		open(t, db.URL, nil)
		execute(t, connect(t, db.URL), `REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA undolog FROM PUBLIC, `+db.Name)
		_, err := postgres.Open(t.Context(), db.URL, nil)
		if err == nil {
			t.Fatal("Open took it")
		}
		for _, function := range []string{"insert_effects", "insert_moves", "note_open"} {
			assertContains(t, err.Error(), "EXECUTE ON FUNCTION undolog."+function)
		}
	})
	t.Run("a role without rights is told so once", func(t *testing.T) {
		db := pgtest.New(t)
		open(t, db.URL, nil)
		execute(t, connect(t, db.URL), `REVOKE SELECT ON undolog.goose_db_version FROM `+db.Name)
		_, err := postgres.Open(t.Context(), db.URL, nil)
		if err == nil || strings.Count(err.Error(), "docs/postgres.md") != 1 {
			t.Errorf("Open = %v, want the place of the GRANTs in it once", err)
		}
	})
}
