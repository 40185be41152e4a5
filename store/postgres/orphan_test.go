package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/postgres"
)

// A connection is cut anywhere within the answer to a Begin, and the database refuses the next try for another reason:
// the caller is told so and sends nothing, and a claim that was made goes as soon as it is found.
func TestOrphans_claimWhoseAnswerWasLost(t *testing.T) {
	db := migrated.New(t)
	proxy := pgtest.NewProxy(t, db.URL)
	direct, conn := open(t, db.URL, nil), connect(t, db.URL)
	first := func(key string) *store.Begin { return keyed(t, "default", key) }
	later := func(key string) *store.Begin {
		released := commit(claimed(t, direct, keyed(t, "default", key)))
		released.State, released.Answer = effect.StateReleased, effect.Answer{}
		if _, err := direct.Append(t.Context(), "default", released); err != nil {
			t.Fatal(err)
		}
		return keyed(t, "default", key)
	}
	for table, begin := range map[string]func(key string) *store.Begin{"effect": first, "transition": later} {
		t.Run("in "+table, func(t *testing.T) {
			d := open(t, withParameter(t, proxy.URL, "pool_max_conns", "1"), nil)
			claimed(t, d, begin(table+" warm"))
			p := begin(table + " measured")
			length := passed(proxy, pgtest.ToClient, func() { claimed(t, d, p) })
			var lost []string
			for i := 1; i <= length; i += stride() {
				p := begin(fmt.Sprint(table, i))
				allow := refuseAfterClaim(t, conn, table)
				proxy.CutAfter(pgtest.ToClient, int64(i))
				_, err := d.Begin(t.Context(), p)
				proxy.Disarm()
				allow()
				if err != nil {
					lost = append(lost, p.Call.Key)
				}
			}
			if len(lost) == 0 {
				t.Fatal("no claim was lost")
			}
			within(t, time.Minute, "release of all", func() bool { return !areHeld(t, direct, lost) })
			for _, key := range lost {
				claimed(t, direct, keyed(t, "default", key))
			}
		})
	}
}

// refuseAfterClaim has the database refuse whatever comes after the next claim in the table, until allow.
func refuseAfterClaim(t *testing.T, conn *pgx.Conn, table string) (allow func()) {
	t.Helper()
	execute(t, conn, `
		CREATE FUNCTION refuse_rest() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
		  REVOKE SELECT ON undolog.effect FROM CURRENT_USER;
		  RETURN NEW;
		END
		$$;
		CREATE TRIGGER refuse_rest BEFORE INSERT ON undolog.`+table+`
		  FOR EACH ROW WHEN (NEW.state = 'claimed') EXECUTE FUNCTION refuse_rest()`)
	return func() {
		execute(t, conn, `DROP FUNCTION refuse_rest() CASCADE; GRANT SELECT ON undolog.effect TO CURRENT_USER`)
	}
}

func areHeld(t *testing.T, d *postgres.Driver, keys []string) bool {
	t.Helper()
	records, err := d.Effects(t.Context(), &store.Filter{Tenant: "default", States: []effect.State{effect.StateClaimed}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		for _, key := range keys {
			if r.Key == key {
				return true
			}
		}
	}
	return false
}
