package postgres_test

import (
	"context"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/postgres"
)

// A role that owns nothing does everything with the rights that docs/postgres.md lists.
func TestRights_TheDocumentedOnesSuffice(t *testing.T) {
	db := pgtest.New(t)
	if err := postgres.Migrate(t.Context(), db.URL); err != nil {
		t.Fatal(err)
	}
	d := open(t, grantDocumented(t, db.URL, db.AdminURL, db.Name+"_app"), nil)
	claim := writesEverything(t, d)
	if err := d.End(t.Context(), claim.Owner); err != nil {
		t.Error(err)
	}
	if err := d.Again(t.Context(), &effect.Event{Tenant: "default", Effect: claim.Effect}); err != nil {
		t.Error(err)
	}
	withdrawn := []store.Delivery{{Tenant: "default", Effect: claim.Effect, At: time.Now(), Withdrawn: true}}
	if err := d.Write(t.Context(), &store.Notes{Deliveries: withdrawn}); err != nil {
		t.Error(err)
	}
	if n, err := d.Prune(t.Context(), &store.Pruning{Before: time.Now().Add(time.Hour)}); err != nil || n.Effects == 0 {
		t.Errorf("Prune = %+v, %v", n, err)
	}
}

// grantDocumented makes a role with the rights of the documentation and returns the address for it.
func grantDocumented(t *testing.T, address, admin, role string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	_, grants, _ := strings.Cut(string(doc), "```sql\nGRANT ")
	grants, _, found := strings.Cut("GRANT "+grants, "```")
	if !found {
		t.Fatal("docs/postgres.md lists no rights")
	}
	execute(t, connect(t, admin), `CREATE ROLE `+role+` LOGIN PASSWORD 'secret'`)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), admin)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role); err != nil {
			t.Error(err)
		}
	})
	execute(t, connect(t, address), strings.ReplaceAll(grants, "undolog_app", role))
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "secret")
	return u.String()
}
