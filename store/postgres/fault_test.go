package postgres_test

import (
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/drivertest"
	"github.com/undolog/undolog/store/postgres"
)

// A connection is cut after any number of bytes of a write, either way: before it was sent, while it is
// sent, and while it is answered, when it may have been done.
func TestFaults_ConnectionCutWithinAWrite(t *testing.T) {
	db := migrated.New(t)
	proxy := pgtest.NewProxy(t, db.URL)
	d := open(t, withParameter(t, proxy.URL, "pool_max_conns", "1"), nil)
	direct := open(t, db.URL, nil)
	for name, way := range map[string]pgtest.Direction{"to the server": pgtest.ToServer, "to the client": pgtest.ToClient} {
		t.Run("of a Begin "+name, func(t *testing.T) {
			begin := func(i int) *store.Begin { return keyed(t, "default", fmt.Sprint(name, i)) }
			claimed(t, d, begin(-1))
			length := passed(proxy, way, func() { claimed(t, d, begin(-2)) })
			for i := 0; i <= length; i += stride() {
				p := begin(i)
				proxy.CutAfter(way, int64(i))
				claim := claimed(t, d, p)
				proxy.Disarm()
				assertHistory(t, direct, claim, effect.StateClaimed)
				if begun, err := direct.Begin(t.Context(), beginOf(t, p.Call, irreversible)); err != nil || begun.Verdict.Action != effect.ActJoin {
					t.Fatalf("cut at %d, the same call again = %+v, %v", i, begun, err)
				}
			}
		})
		t.Run("of a Settle "+name, func(t *testing.T) {
			settle := func(i int) func() {
				claim := claimed(t, d, keyed(t, "default", fmt.Sprint("settled", name, i)))
				return func() {
					if r, err := d.Append(t.Context(), "default", commit(claim)); err != nil || r.State != effect.StateCommitted {
						t.Fatalf("cut at %d: Append = %+v, %v", i, r, err)
					}
					proxy.Disarm()
					assertHistory(t, direct, claim, effect.StateClaimed, effect.StateCommitted)
				}
			}
			settle(-1)()
			length := passed(proxy, way, settle(-2))
			for i := 0; i <= length; i += stride() {
				settled := settle(i)
				proxy.CutAfter(way, int64(i))
				settled()
			}
		})
	}
	if proxy.Cuts() == 0 {
		t.Error("nothing was cut")
	}
}

// A beat is not flushed by itself: a server that ends at once with the claim that was to rest on it has lost it, and
// the claim is not made again without it.
func TestFaults_BeatLostWithTheServer(t *testing.T) {
	db := migrated.New(t)
	proxy := pgtest.NewProxy(t, db.URL)
	d := open(t, withParameter(t, proxy.URL, "pool_max_conns", "1"), nil)
	claimed(t, d, keyed(t, "default", "beats"))
	conn := connect(t, db.URL)
	if _, err := conn.Exec(t.Context(), `DELETE FROM undolog.owner`); err != nil {
		t.Fatal(err)
	}
	proxy.CutAfter(pgtest.ToServer, 0)
	p := keyed(t, "default", "made twice")
	claimed(t, d, p)
	proxy.Disarm()
	if proxy.Cuts() == 0 {
		t.Fatal("nothing was cut")
	}
	other := beginOf(t, p.Call, irreversible)
	other.Owner = "other"
	begun, err := open(t, db.URL, nil).Begin(t.Context(), other)
	if err != nil || begun.Verdict.Action != effect.ActJoin {
		t.Errorf("the same call elsewhere = %+v, %v, want to join", begun, err)
	}
}

var everyByte = flag.Bool("everybyte", false, "cut connections at every byte, which takes minutes, and not at one of 23")

func stride() int {
	if *everyByte {
		return 1
	}
	return 23 // no field is as long
}

func passed(p *pgtest.Proxy, way pgtest.Direction, do func()) int {
	sent, got := p.Passed()
	do()
	sentNow, gotNow := p.Passed()
	if way == pgtest.ToServer {
		return int(sentNow - sent)
	}
	return int(gotNow - got)
}

func assertHistory(t *testing.T, d *postgres.Driver, claim *effect.Claim, want ...effect.State) {
	t.Helper()
	moves, _, err := d.History(t.Context(), claim.Tenant, claim.Effect)
	if err != nil {
		t.Fatalf("History: %v", err)
	}
	var got []effect.State
	for _, m := range moves {
		got = append(got, m.State)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("states %v, want %v", got, want)
	}
}

func TestFaults_DatabaseAway(t *testing.T) {
	db := migrated.New(t)
	proxy := pgtest.NewProxy(t, db.URL)
	direct := open(t, db.URL, nil)
	d, patient := open(t, proxy.URL, &postgres.Options{Patience: 1500 * time.Millisecond}), open(t, proxy.URL, &postgres.Options{Patience: time.Hour})
	claim := claimed(t, direct, keyed(t, "default", "before"))
	t.Run("for long is an error that says so", func(t *testing.T) {
		proxy.Refuse(true)
		proxy.Drop()
		if _, err := d.Begin(t.Context(), keyed(t, "default", "away")); !errors.Is(err, store.ErrUnreachable) {
			t.Errorf("Begin = %v, want ErrUnreachable", err)
		}
		late := keyed(t, "default", "late")
		late.Waited = time.Hour - 10*time.Millisecond
		if _, err := patient.Begin(t.Context(), late); !errors.Is(err, store.ErrUnreachable) { // within the hour
			t.Errorf("Begin = %v, want ErrUnreachable when what its caller had left is over", err)
		}
		if _, err := d.Append(t.Context(), "default", commit(claim)); !errors.Is(err, store.ErrUnreachable) {
			t.Errorf("Append = %v, want ErrUnreachable", err)
		}
		if err := d.Ping(t.Context()); err == nil {
			t.Error("Ping says that it is there")
		}
		proxy.Refuse(false)
	})
	t.Run("and there again, it goes on", func(t *testing.T) {
		move, after := commit(claim), keyed(t, "default", "after")
		within(t, time.Minute, "move", func() bool {
			r, err := d.Append(t.Context(), "default", move)
			return err == nil && r.State == effect.StateCommitted
		})
		within(t, time.Minute, "claim", func() bool {
			begun, err := d.Begin(t.Context(), after)
			return err == nil && begun.Claim != nil
		})
		within(t, time.Minute, "sign of life", func() bool { return d.Ping(t.Context()) == nil })
	})
	t.Run("silent is as good as away", func(t *testing.T) {
		proxy.Pause(pgtest.ToClient)
		if _, err := d.Begin(t.Context(), keyed(t, "default", "silent")); !errors.Is(err, store.ErrUnreachable) {
			t.Errorf("Begin = %v, want ErrUnreachable", err)
		}
		proxy.Resume()
		proxy.Drop()
	})
	t.Run("what was claimed meanwhile without anybody's knowing is released, since nobody sends it", func(t *testing.T) {
		within(t, time.Minute, "release", func() bool {
			records, err := direct.Effects(t.Context(), &store.Filter{Tenant: "default", States: []effect.State{effect.StateReleased}})
			if err != nil {
				t.Fatal(err)
			}
			return len(records) == 1 && records[0].Key == "silent"
		})
		if begun, err := direct.Begin(t.Context(), keyed(t, "default", "silent")); err != nil || begun.Verdict.Action != effect.ActReclaim {
			t.Errorf("Begin = %+v, %v", begun, err)
		}
	})
}

// What the database itself calls off is tried again. However slow it is, it gets something done in between.
func TestFaults_BackendsAreTerminated(t *testing.T) {
	db := migrated.New(t)
	d, admin := open(t, db.URL, nil), connect(t, db.AdminURL)
	var settled atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		terminateAgain(t, admin, &settled, stop)
	}()
	share(drivertest.Scale(2000)+100, 16, func(i int) {
		begun, err := d.Begin(t.Context(), keyed(t, "default", fmt.Sprint(i)))
		if err != nil || begun.Claim == nil {
			t.Errorf("Begin = %+v, %v", begun, err)
			return
		}
		if r, err := d.Append(t.Context(), "default", commit(begun.Claim)); err != nil || r.State != effect.StateCommitted || r.Ordinal != 1 {
			t.Errorf("Append = %+v, %v", r, err)
		}
		settled.Add(1)
	})
	close(stop)
	<-stopped
}

// terminateAgain ends all of the database's connections, again when a few calls have been settled since, until stop.
func terminateAgain(t *testing.T, admin *pgx.Conn, settled *atomic.Int64, stop <-chan struct{}) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for next := int64(1); ; {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if settled.Load() < next {
			continue
		}
		next = settled.Load() + 20
		_, err := admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND usename <> current_user`)
		if err != nil {
			t.Error(err)
			return
		}
	}
}
