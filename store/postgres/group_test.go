package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/drivertest"
	"github.com/undolog/undolog/store/postgres"
)

func assertContains(t *testing.T, s, part string) {
	t.Helper()
	if !strings.Contains(s, part) {
		t.Errorf("%q is not in %q", part, s)
	}
}

func TestGroups_functionsSayWhatStatementsSay(t *testing.T) {
	db := migrated.New(t)
	open(t, db.URL, nil)
	conn := connect(t, db.URL)
	inFunction := strings.NewReplacer("$1::text", "own_tenant", "$2::timestamptz", "fixed_now",
		"$3::undolog.new_effect[]", "added", "$3::undolog.new_move[]", "added")
	for name, sql := range postgres.Inserts {
		var source string
		if err := conn.QueryRow(t.Context(), `SELECT prosrc FROM pg_proc WHERE oid = ('undolog.' || $1)::regproc`, name).Scan(&source); err != nil {
			t.Fatal(err)
		}
		assertContains(t, strings.Join(strings.Fields(source), " "), strings.Join(strings.Fields(inFunction.Replace(sql)), " ")+";")
	}
}

// A function of somebody else's, in a schema that the role looks into, fits the type of what groups send better than
// the server's own.
func TestGroups_callNothingOfOtherSchemas(t *testing.T) {
	db := migrated.New(t)
	open(t, db.URL, nil)
	conn := connect(t, db.URL)
	for _, row := range []string{"new_effect", "new_move"} {
		execute(t, conn, `
			CREATE FUNCTION public.unnest(undolog.`+row+`[]) RETURNS SETOF undolog.`+row+` LANGUAGE plpgsql AS $$
			BEGIN
			  RAISE 'called';
			END
			$$`)
	}
	for name, address := range map[string]string{"directly": db.URL, "through PgBouncer": pgtest.NewBouncer(t, db, nil).URL} {
		t.Run(name, func(t *testing.T) {
			d := open(t, address, nil)
			const n = 320
			share(n, 64, func(i int) {
				begun, err := d.Begin(t.Context(), keyed(t, "default", fmt.Sprint(name, i)))
				if err != nil || begun.Claim == nil {
					t.Errorf("Begin = %+v, %v", begun, err)
				} else if _, err := d.Append(t.Context(), "default", commit(begun.Claim)); err != nil {
					t.Errorf("Append: %v", err)
				}
			})
			if s := d.Stats(); s.Groups == s.Grouped || s.Grouped < 2*n { // more when one is tried again
				t.Errorf("%d writes in %d groups", s.Grouped, s.Groups)
			}
		})
	}
}

func TestGroups(t *testing.T) {
	t.Run("a lone caller's writes go by themselves", func(t *testing.T) {
		d := open(t, migrated.New(t).URL, nil)
		for i := range 10 {
			claim := claimed(t, d, keyed(t, "default", fmt.Sprint(i)))
			if _, err := d.Append(t.Context(), "default", commit(claim)); err != nil {
				t.Fatal(err)
			}
		}
		if s := d.Stats(); s.Groups != 20 || s.Grouped != 20 {
			t.Errorf("%d writes in %d groups, want 20 in 20", s.Grouped, s.Groups)
		}
	})
	t.Run("those of many share transactions", func(t *testing.T) {
		d := open(t, migrated.New(t).URL, nil)
		const n = 640
		share(n, 64, func(i int) { claimed(t, d, keyed(t, "default", fmt.Sprint(i))) })
		if s := d.Stats(); s.Groups >= n/2 || s.Grouped < n {
			t.Errorf("%d writes in %d groups", s.Grouped, s.Groups)
		}
	})
	t.Run("large ones share none that a server would refuse", func(t *testing.T) {
		d := open(t, migrated.New(t).URL, nil)
		const n, size = 32, 4 << 20
		share(n, n, func(i int) {
			p := keyed(t, "default", fmt.Sprint(i))
			p.Call.Arguments = fmt.Appendf(nil, `{"text":"%s"}`, strings.Repeat("x", size)) // %q is slow
			claimed(t, d, p)
		})
		if s := d.Stats(); s.Groups < n*size/(16<<20) || s.Grouped < n { // more when one is tried again
			t.Errorf("%d writes of %d bytes in %d groups", s.Grouped, size, s.Groups)
		}
	})
	t.Run("a bad row fails alone", func(t *testing.T) {
		d := open(t, migrated.New(t).URL, nil)
		var failed atomic.Int32
		const n = 320
		share(n, 64, func(i int) {
			p := keyed(t, "default", fmt.Sprint(i))
			if i%32 == 0 {
				c := *p.Contract
				c.Tier = "nonsense"
				p.Contract = &c
			}
			begun, err := d.Begin(t.Context(), p)
			switch {
			case i%32 == 0 && err != nil:
				failed.Add(1)
			case err != nil, i%32 == 0, begun.Claim == nil:
				t.Errorf("call %d: Begin = %+v, %v", i, begun, err)
			}
		})
		if failed.Load() != n/32 {
			t.Errorf("%d calls failed, want %d", failed.Load(), n/32)
		}
	})
	t.Run("replays of many are read together, and each gets its own", func(t *testing.T) {
		d := open(t, migrated.New(t).URL, nil)
		tenant := func(i int) string { return fmt.Sprint("tenant-", i%3) }
		const calls = 30
		var ids [calls]string
		for i := range calls {
			claim := claimed(t, d, keyed(t, tenant(i), fmt.Sprint(i)))
			if _, err := d.Append(t.Context(), tenant(i), commit(claim)); err != nil {
				t.Fatal(err)
			}
			ids[i] = claim.Effect
		}
		share(640, 64, func(n int) {
			i := n * 7 % calls
			begun, err := d.Begin(t.Context(), keyed(t, tenant(i), fmt.Sprint(i)))
			if err != nil || begun.Verdict.Action != effect.ActReplay || begun.Record.ID != ids[i] || string(begun.Record.Answer.Body) != `{"ok":1}` {
				t.Errorf("Begin = %+v, %v", begun, err)
			}
		})
	})
	t.Run("who has left before is left out", func(t *testing.T) {
		d := open(t, migrated.New(t).URL, nil)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := d.Begin(gone, keyed(t, "default", "k")); err == nil {
			t.Error("Begin of a caller that had left")
		}
		records, err := d.Effects(t.Context(), &store.Filter{Tenant: "default"})
		if err != nil || len(records) != 0 {
			t.Errorf("%d effects, %v", len(records), err)
		}
	})
	t.Run("groups of two processes with the same calls in another order do not wait for each other", func(t *testing.T) {
		db := migrated.New(t)
		d, e := open(t, db.URL, nil), open(t, db.URL, nil)
		n := drivertest.Scale(2000)
		var claims atomic.Int32
		var both sync.WaitGroup
		for who, order := range []func(i int) int{func(i int) int { return i }, func(i int) int { return i/64*64 + 63 - i%64 }} {
			driver := []store.Driver{d, e}[who]
			both.Go(func() {
				share(n, 64, func(i int) {
					begun, err := driver.Begin(t.Context(), keyed(t, fmt.Sprint("tenant-", order(i)%3), fmt.Sprint(order(i))))
					if err != nil {
						t.Error(err)
					} else if begun.Claim != nil {
						claims.Add(1)
					}
				})
			})
		}
		both.Wait()
		conn := connect(t, db.URL)
		var deadlocks int
		if err := conn.QueryRow(t.Context(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&deadlocks); err != nil || deadlocks != 0 {
			t.Errorf("%d deadlocks, %v", deadlocks, err)
		}
		if want := int32((n + 63) / 64 * 64); claims.Load() > want || claims.Load() < int32(n) {
			t.Errorf("%d claims of %d calls", claims.Load(), n)
		}
	})
}

// However many tools run, none holds a connection.
func TestPool_OfTwoServesManyCallsUnderWay(t *testing.T) {
	url := withParameter(t, migrated.New(t).URL, "pool_max_conns", "2")
	d := open(t, url, nil)
	const callers = 200
	var claims [callers]*effect.Claim
	share(callers, callers, func(i int) { claims[i] = claimed(t, d, keyed(t, "default", fmt.Sprint(i))) })
	if s := d.Stats(); s.UsedConns != 0 || s.TotalConns > 2 {
		t.Errorf("with %d tools running %d of %d connections are in use", callers, s.UsedConns, s.TotalConns)
	}
	share(callers, callers, func(i int) {
		if r, err := d.Append(t.Context(), "default", commit(claims[i])); err != nil || r.State != effect.StateCommitted {
			t.Errorf("Append = %+v, %v", r, err)
		}
	})
}
