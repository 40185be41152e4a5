package postgres_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/pgcluster"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
)

// everyReading returns a URL for each way in which a settled call is read.
func everyReading(t *testing.T) (of map[string]string, admin string) {
	db := migrated.New(t)
	return map[string]string{
		"prepared":                             db.URL,
		"with statements of no name":           withParameter(t, db.URL, "default_query_exec_mode", "exec"),
		"with text for all values":             withParameter(t, db.URL, "default_query_exec_mode", "simple_protocol"),
		"through PgBouncer":                    pgtest.NewBouncer(t, db, nil).URL,
		"through PgBouncer as it is found out": withParameter(t, pgtest.NewBouncer(t, db, &pgcluster.BouncerOptions{PoolSize: 2}).URL, "default_query_exec_mode", "cache_statement"),
	}, db.URL
}

// What answers a call is the effect as it is read by its id, whatever of it is read.
func TestBegin_replaysTheWholeRecord(t *testing.T) {
	urls, url := everyReading(t)
	full := open(t, url, nil)
	settled := func(key string) string {
		p := beginOf(t, &effect.Call{
			Tenant: "ac\x00me", Principal: "agent:ä\x01", Server: "payments", Tool: "charge", Key: key, Run: "run-7", Occurrence: "2",
			Arguments: []byte(`{"n": 9007199254740993 }`), Session: "s-1", Trace: "0af7651916cd43dd8448eb211c80319c",
		}, irreversible)
		p.Policy = "digest"
		claim := claimed(t, full, p)
		move := commit(claim)
		move.Reason, move.Answer.IsError = "it said so", true
		if _, err := full.Append(t.Context(), claim.Tenant, move); err != nil {
			t.Fatal(err)
		}
		return claim.Effect
	}
	pruned := settled("pruned")
	if done, err := full.Prune(t.Context(), &store.Pruning{Before: time.Now().Add(time.Hour)}); err != nil || done.Effects != 1 {
		t.Fatalf("Prune = %+v, %v", done, err)
	}
	ids := map[string]string{"plain": settled("plain"), "delivered": settled("delivered"), "pruned": pruned}
	arrived := store.Delivery{Tenant: "ac\x00me", Effect: ids["delivered"], At: time.Now().Add(time.Minute)}
	if err := full.Write(t.Context(), &store.Notes{Deliveries: []store.Delivery{arrived}}); err != nil {
		t.Fatal(err)
	}
	for name, address := range urls {
		t.Run(name, func(t *testing.T) {
			d := open(t, address, nil)
			for key, id := range ids {
				want, err := full.Effect(t.Context(), "ac\x00me", id)
				if err != nil {
					t.Fatal(err)
				}
				p := beginOf(t, &effect.Call{
					Tenant: "ac\x00me", Principal: "agent:ä\x01", Server: "payments", Tool: "charge", Key: key, Run: "run-7", Occurrence: "2",
					Arguments: []byte(`{"n":9007199254740993}`),
				}, irreversible)
				for range 2 { // as a call that is not known, and as one that is
					begun, err := d.Begin(t.Context(), p)
					if err != nil || begun.Verdict.Action != effect.ActReplay {
						t.Fatalf("Begin = %+v, %v", begun, err)
					}
					got := *begun.Record
					if !got.OwnerUntil.IsZero() {
						t.Errorf("%s was read as any effect is", key)
					}
					got.OwnerUntil = want.OwnerUntil // of nobody's interest when it is settled
					if diff := cmp.Diff(want, &got); diff != "" {
						t.Errorf("%s (-Effect +Begin)\n%s", key, diff)
					}
				}
			}
		})
	}
}

// To whom a signature of another tenant's were known, it would say nothing.
func TestBegin_readsNothingOfAnotherTenants(t *testing.T) {
	urls, url := everyReading(t)
	mine := keyed(t, "acme", "k")
	d := open(t, url, nil)
	claim := claimed(t, d, mine)
	if _, err := d.Append(t.Context(), "acme", commit(claim)); err != nil {
		t.Fatal(err)
	}
	for name, address := range urls {
		t.Run(name, func(t *testing.T) {
			d := open(t, address, nil)
			begun, err := d.Begin(t.Context(), keyed(t, "acme", "k"))
			if err != nil || begun.Record.ID != claim.Effect {
				t.Fatalf("Begin of one's own = %+v, %v", begun, err)
			}
			theirs := keyed(t, "other", "k")
			theirs.Identity = mine.Identity
			theirs.Waited = 29 * time.Second // of its patience: that it finds nothing and can claim nothing is tried again
			if begun, err := d.Begin(t.Context(), theirs); err == nil {
				t.Errorf("Begin of another's = %+v", begun)
			}
		})
	}
}
