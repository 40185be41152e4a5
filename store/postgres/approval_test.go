package postgres_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/postgres"
)

// asking is a contract under which a person is asked, changed as a test wants it.
func asking(changes ...func(*effect.Contract)) *effect.Contract {
	c := *irreversible
	c.Approve, c.Asking = true, effect.Asking{Quorum: 1, DecideFor: 24 * time.Hour, UseFor: time.Hour}
	for _, change := range changes {
		change(&c)
	}
	return &c
}

func limited(c *effect.Contract) {
	c.Approve = false
	c.Limits = []effect.Limit{{Name: "calls", Per: effect.PerTenant, Max: 1_000_000 * effect.Unit}}
}

// under is a call as keyed makes it, under another contract.
func under(t *testing.T, c *effect.Contract, key string) *store.Begin {
	t.Helper()
	p := beginOf(t, keyed(t, "default", key).Call, c)
	spends, err := c.Spends(p.Call)
	if err != nil {
		t.Fatal(err)
	}
	p.Spends, p.Request = spends, store.Request{ID: newID(t), Handle: uuid.NewString()}
	return p
}

func requested(t *testing.T, d *postgres.Driver, p *store.Begin) *effect.Record {
	t.Helper()
	begun, err := d.Begin(t.Context(), p)
	if err != nil || begun.Verdict.Action != effect.ActRequest {
		t.Fatalf("Begin = %+v, %v", begun, err)
	}
	return begun.Record
}

// approvalOf is the move by which a person approves a request.
func approvalOf(t *testing.T, r *effect.Record) *effect.Transition {
	t.Helper()
	move, err := r.Decided(&effect.Decision{Kind: effect.DecideApprove, By: "user:u", Via: "cli"}, r.ChangedAt.Add(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return move
}

func approved(t *testing.T, d *postgres.Driver, p *store.Begin) *effect.Record {
	t.Helper()
	r, err := d.Append(t.Context(), "default", approvalOf(t, requested(t, d, p)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cut cuts the driver's connection after any number of bytes of a write, either way. What prepares the i-th write
// returns it, and what must be true whatever became of the connection.
func cut(t *testing.T, prepare func(t *testing.T, d, direct *postgres.Driver, i int) (write, check func(t *testing.T))) {
	db := migrated.New(t)
	proxy := pgtest.NewProxy(t, db.URL)
	d := open(t, withParameter(t, proxy.URL, "pool_max_conns", "1"), nil)
	direct := open(t, db.URL, nil)
	for name, way := range map[string]pgtest.Direction{"to the server": pgtest.ToServer, "to the client": pgtest.ToClient} {
		t.Run(name, func(t *testing.T) {
			n := int(way) * 100_000
			write, _ := prepare(t, d, direct, n)
			write(t) // meets the tenant, beats, prepares
			write, _ = prepare(t, d, direct, n+1)
			length := passed(proxy, way, func() { write(t) })
			for at := 0; at <= length; at += stride() {
				write, check := prepare(t, d, direct, n+2+at)
				proxy.CutAfter(way, int64(at))
				write(t)
				proxy.Disarm()
				if check(t); t.Failed() {
					t.Fatalf("cut at %d of %d", at, length)
				}
			}
		})
	}
	if proxy.Cuts() == 0 {
		t.Error("nothing was cut")
	}
}

type step = func(t *testing.T)

func TestFaults_ConnectionCutWithinARequest(t *testing.T) {
	c := asking()
	cut(t, func(t *testing.T, d, direct *postgres.Driver, i int) (step, step) {
		p := under(t, c, fmt.Sprint(i))
		return func(t *testing.T) { requested(t, d, p) }, func(t *testing.T) {
			begun, err := direct.Begin(t.Context(), under(t, c, fmt.Sprint(i)))
			if err != nil || begun.Verdict.Action != effect.ActAsk || begun.Record.Approval.ID != p.Request.ID || begun.Record.Ordinal != 0 {
				t.Errorf("the same call again = %+v, %v", begun, err)
			}
		}
	})
}

func TestFaults_ConnectionCutWithinADecision(t *testing.T) {
	c := asking()
	decide := func(t *testing.T, d *postgres.Driver, move *effect.Transition) {
		t.Helper()
		if r, err := d.Append(t.Context(), "default", move); err != nil || !r.Approval.IsApproved() {
			t.Errorf("Append = %+v, %v", r, err)
		}
	}
	cut(t, func(t *testing.T, d, direct *postgres.Driver, i int) (step, step) {
		r := requested(t, direct, under(t, c, fmt.Sprint(i)))
		move := approvalOf(t, r)
		return func(t *testing.T) { decide(t, d, move) }, func(t *testing.T) {
			moves, _, err := direct.History(t.Context(), "default", r.ID)
			if err != nil || len(moves) != 2 {
				t.Errorf("%d moves, %v", len(moves), err)
			}
			// The same decision again, by somebody of the same name at the same moment, is another one.
			_, err = direct.Append(t.Context(), "default", move)
			if _, ok := errors.AsType[*store.ConflictError](err); !ok {
				t.Errorf("Append of another = %v, want a conflict", err)
			}
		}
	})
}

func TestFaults_ConnectionCutWithinAClaim(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, direct *postgres.Driver, i int) *store.Begin{
		"that was approved": func(t *testing.T, direct *postgres.Driver, i int) *store.Begin {
			approved(t, direct, under(t, asking(), fmt.Sprint(i)))
			return under(t, asking(), fmt.Sprint(i))
		},
		"that takes from a limit": func(t *testing.T, direct *postgres.Driver, i int) *store.Begin {
			return under(t, asking(limited), fmt.Sprint(i))
		},
	} {
		t.Run(name, func(t *testing.T) {
			cut(t, func(t *testing.T, d, direct *postgres.Driver, i int) (step, step) {
				p := prepare(t, direct, i)
				var claim *effect.Claim
				return func(t *testing.T) { claim = claimed(t, d, p) }, func(t *testing.T) {
					r, err := direct.Effect(t.Context(), "default", claim.Effect)
					if err != nil || r.Ordinal != claim.Ordinal || r.State != effect.StateClaimed {
						t.Errorf("Effect = %+v, %v", r, err)
					}
					begun, err := direct.Begin(t.Context(), under(t, p.Contract, fmt.Sprint(i)))
					if err != nil || begun.Verdict.Action != effect.ActJoin {
						t.Errorf("the same call again = %+v, %v", begun, err)
					}
				}
			})
		})
	}
}

// What is noted to count for ever still counts within the limit's time only, and what may yet be given back is
// not noted.
func TestLimits_CountTheSameWhenItIsNoted(t *testing.T) {
	db := migrated.New(t)
	const most = 120
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	d := open(t, db.URL, &postgres.Options{Now: func() time.Time { return now }})
	c := asking(limited)
	c.Limits[0].Max, c.Limits[0].Within = most*effect.Unit, time.Hour
	begin := func(i int) *store.Begun {
		t.Helper()
		begun, err := d.Begin(t.Context(), under(t, c, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		return begun
	}
	end := func(claim *effect.Claim, state effect.State) {
		t.Helper()
		m := commit(claim)
		if m.State = state; state == effect.StateReleased {
			m.Answer = effect.Answer{}
		}
		if _, err := d.Append(t.Context(), "default", m); err != nil {
			t.Fatal(err)
		}
	}
	var late []*effect.Claim
	for i := range most {
		if i == most/2 {
			now = now.Add(30 * time.Minute)
		}
		claim := begin(i).Claim
		if claim == nil {
			t.Fatalf("call %d of %d is refused", i, most)
		}
		if i%10 == 0 {
			late = append(late, claim)
		} else {
			end(claim, effect.StateCommitted)
		}
	}
	if v := begin(most).Verdict; v.Action != effect.ActLimit {
		t.Errorf("one more: %s", v.Action)
	}
	for _, claim := range late {
		end(claim, effect.StateReleased)
	}
	for i := range late {
		if begin(most+i).Claim == nil {
			t.Errorf("call %d is refused after %d have given back", i, len(late))
		}
	}
	if v := begin(2 * most).Verdict; v.Action != effect.ActLimit {
		t.Errorf("one more: %s", v.Action)
	}
	now = now.Add(30 * time.Minute) // the first half is over
	for i := range most/2 - len(late)/2 {
		if begin(3*most+i).Claim == nil {
			t.Fatalf("call %d is refused when the first half is over", i)
		}
	}
	if v := begin(4 * most).Verdict; v.Action != effect.ActLimit {
		t.Errorf("one more: %s", v.Action)
	}
	var counted int
	conn := connect(t, db.URL)
	execute(t, conn, `SELECT set_config('undolog.tenant', 'default', false)`)
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM undolog.spend WHERE counted`).Scan(&counted); err != nil || counted == 0 {
		t.Errorf("%d noted to count, %v", counted, err)
	}
}

// Somebody sets another isolation while replicas run, under which what is read could be older than the lock.
func TestLimits_HoldUnderAnyIsolation(t *testing.T) {
	db := migrated.New(t)
	d, e := open(t, db.URL, nil), open(t, db.URL, nil)
	execute(t, connect(t, db.AdminURL), `ALTER ROLE `+db.Name+` SET default_transaction_isolation = 'repeatable read'`)
	c := asking(limited)
	c.Limits[0].Max = 7 * effect.Unit
	calls := make([]*store.Begin, 64)
	for i := range calls {
		calls[i] = under(t, c, fmt.Sprint(i))
	}
	var claims atomic.Int32
	share(len(calls), len(calls), func(i int) {
		begun, err := []*postgres.Driver{d, e}[i%2].Begin(t.Context(), calls[i])
		if err != nil {
			t.Errorf("Begin: %v", err)
		} else if begun.Claim != nil {
			claims.Add(1)
		}
	})
	if claims.Load() != 7 {
		t.Errorf("%d claims, want 7", claims.Load())
	}
}
