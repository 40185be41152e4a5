package postgres_test

import (
	"strings"
	"testing"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// The server has one code for a role that may not write and for a row that it does not take.
func TestErrors_rowThatTheLogCannotHold(t *testing.T) {
	d := open(t, migrated.New(t).URL, nil)
	read := *irreversible
	read.Tier = effect.TierRead // which has no signature
	claim := keyed(t, "default", "k")
	claim.Contract = &read
	_, begun := d.Begin(t.Context(), claim)
	written := d.Write(t.Context(), &store.Notes{Reads: []*effect.Record{{
		ID: newID(t), Tenant: "default", Tier: effect.TierIrreversible, Rule: effect.RuleWindow, State: effect.StateCommitted,
	}}})
	for of, err := range map[string]error{"Begin": begun, "Write": written} {
		if err == nil {
			t.Fatalf("%s took it", of)
		}
		assertContains(t, err.Error(), "bug of undolog's")
		if strings.Contains(err.Error(), "see docs/postgres.md") {
			t.Errorf("%s = %q blames the role's rights", of, err)
		}
	}
}

func TestErrors_roleThatMayNotWrite(t *testing.T) {
	db := migrated.New(t)
	d := open(t, db.URL, nil)
	execute(t, connect(t, db.URL), `REVOKE INSERT ON undolog.effect FROM `+db.Name)
	_, err := d.Begin(t.Context(), keyed(t, "default", "k"))
	if err == nil {
		t.Fatal("Begin made a claim")
	}
	assertContains(t, err.Error(), "docs/postgres.md for the GRANTs")
	if strings.Contains(err.Error(), "bug") {
		t.Errorf("Begin = %q speaks of a bug", err)
	}
}
