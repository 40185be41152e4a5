package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/postgres"
)

// beyondMark is more effects than who lists what is open leaves unaccounted for.
const beyondMark = 2100

// fillBeyondMark records that many finished calls of nobody's interest.
func fillBeyondMark(t *testing.T, d *postgres.Driver, tenant string) {
	t.Helper()
	reads := make([]*effect.Record, beyondMark)
	for i := range reads {
		reads[i] = &effect.Record{
			ID: newID(t), Tenant: tenant, Principal: "agent:a", Server: "files", Tool: "read", Tier: effect.TierRead, Rule: effect.RuleWindow,
			State: effect.StateCommitted, CreatedAt: time.Now(), ChangedAt: time.Now(),
		}
	}
	if err := d.Write(t.Context(), &store.Notes{Reads: reads}); err != nil {
		t.Fatal(err)
	}
}

func openIDs(t *testing.T, d *postgres.Driver, f *store.Filter) []string {
	t.Helper()
	records, err := d.Effects(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids
}

// What is open is listed from an account, and is the same as what the whole log says.
func TestEffects_OpenOnesAreFoundWhereverTheyAre(t *testing.T) {
	db := migrated.New(t)
	d := open(t, db.URL, nil)
	var open []string // newest first
	add := func(id string) { open = slices.Insert(open, 0, id) }
	assert := func(when string) {
		t.Helper()
		if diff := cmp.Diff(open, openIDs(t, d, &store.Filter{Tenant: "default", Open: true, Limit: 1000})); diff != "" {
			t.Errorf("%s: open (-want +got)\n%s", when, diff)
		}
	}
	move := func(id string, to effect.State, by string) {
		t.Helper()
		r, err := d.Effect(t.Context(), "default", id)
		if err != nil {
			t.Fatal(err)
		}
		m := &effect.Transition{Effect: id, Ordinal: r.Ordinal + 1, Attempt: r.Attempt, State: to, Owner: r.Owner, By: by}
		if _, err := d.Append(t.Context(), "default", m); err != nil {
			t.Fatal(err)
		}
	}
	var claims []string
	for i := range 6 {
		id := claimed(t, d, keyed(t, "default", fmt.Sprint(i))).Effect
		claims = append(claims, id)
		add(id)
	}
	move(claims[1], effect.StateWaiting, "")
	move(claims[2], effect.StateInDoubt, "")
	move(claims[3], effect.StateReleased, "")
	move(claims[4], effect.StateCommitted, "")
	open = slices.DeleteFunc(open, func(id string) bool { return id == claims[3] || id == claims[4] })
	asked := requested(t, d, under(t, asking(), "asked"))
	add(asked.ID)
	assert("before there is an account")

	fillBeyondMark(t, d, "default")
	assert("when the account is made")
	assert("when it is there")

	if begun, err := d.Begin(t.Context(), keyed(t, "default", "3")); err != nil || begun.Verdict.Action != effect.ActReclaim {
		t.Fatalf("Begin = %+v, %v", begun, err)
	}
	open = slices.Insert(open, slices.Index(open, claims[2]), claims[3])
	move(claims[0], effect.StateCommitted, "")
	move(claims[2], effect.StateCommitted, "")
	move(asked.ID, effect.StateDenied, "user:u")
	open = slices.DeleteFunc(open, func(id string) bool { return id == claims[0] || id == claims[2] || id == asked.ID })
	assert("when older ones have moved")

	fillBeyondMark(t, d, "default")
	assert("when the account is brought up to date")
	move(claims[3], effect.StateInDoubt, "")
	move(claims[1], effect.StateInDoubt, "")
	fillBeyondMark(t, d, "default")
	assert("at the end")

	var rows int
	conn := connect(t, db.URL)
	execute(t, conn, `SELECT set_config('undolog.tenant', 'default', false)`)
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM undolog.open_move`).Scan(&rows); err != nil || rows != len(open) {
		t.Errorf("%d rows on the account of %d open effects, %v", rows, len(open), err)
	}
	if other := openIDs(t, d, &store.Filter{Tenant: "other", Open: true}); len(other) != 0 {
		t.Errorf("another tenant's: %v", other)
	}
}
