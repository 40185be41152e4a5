package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/pgcluster"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/drivertest"
	"github.com/undolog/undolog/store/postgres"
)

// The ways of TestDriver run at once however few processors there are: much of their time they wait for the server.
func TestMain(m *testing.M) {
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue && runtime.GOMAXPROCS(0) < 4 {
		if err := p.Value.Set("4"); err != nil {
			panic(err) // it is a number
		}
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Exit))
}

// migrated is what a test starts from that is about neither the schema nor who may do what with it.
var migrated = pgtest.NewTemplate(postgres.Migrate)

// The suite runs in every way that a database is reached in, side by side: most of its time it waits.
func TestDriver(t *testing.T) {
	for name, address := range map[string]func(t *testing.T) string{
		"with a pool of sixteen": func(t *testing.T) string { return migrated.New(t).URL },
		"with a pool of two":     func(t *testing.T) string { return withParameter(t, migrated.New(t).URL, "pool_max_conns", "2") },
		"through PgBouncer in transaction mode": func(t *testing.T) string {
			return pgtest.NewBouncer(t, migrated.New(t), &pgcluster.BouncerOptions{PoolSize: 4}).URL
		},
		"with statements of no name, as the URL says": func(t *testing.T) string {
			return withParameter(t, migrated.New(t).URL, "default_query_exec_mode", "exec")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, drivertest.Harness{New: func(t *testing.T) func(now func() time.Time) store.Driver {
				return opener(t, address(t))
			}})
		})
	}
}

func opener(t *testing.T, url string) func(now func() time.Time) store.Driver {
	return func(now func() time.Time) store.Driver {
		return open(t, url, &postgres.Options{Now: now})
	}
}

// open opens a driver that the test closes.
func open(tb testing.TB, url string, opts *postgres.Options) *postgres.Driver {
	tb.Helper()
	d, err := postgres.Open(tb.Context(), url, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Error(err)
		}
	})
	return d
}

func withParameter(t *testing.T, address, name, value string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// connect is a connection of the test's own.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

const owner = "01890000-0000-7000-8000-000000000001"

// keyed is a call under a key of its own, with arguments of its own.
func keyed(tb testing.TB, tenant, key string) *store.Begin {
	tb.Helper()
	return beginOf(tb, &effect.Call{Tenant: tenant, Principal: "agent:a", Server: "payments", Tool: "charge", Key: key, Arguments: fmt.Appendf(nil, `{"key":%q}`, key)}, irreversible)
}

func beginOf(tb testing.TB, call *effect.Call, c *effect.Contract) *store.Begin {
	tb.Helper()
	id, err := c.Identify(call)
	if err != nil {
		tb.Fatal(err)
	}
	return &store.Begin{ID: newID(tb), Call: call, Identity: id, Contract: c, Owner: owner, TTL: time.Hour}
}

func newID(tb testing.TB) string {
	tb.Helper()
	id, err := uuid.NewV7()
	if err != nil {
		tb.Fatal(err)
	}
	return id.String()
}

func commit(claim *effect.Claim) *effect.Transition {
	return &effect.Transition{
		Effect: claim.Effect, Ordinal: claim.Ordinal + 1, Attempt: claim.Attempt, State: effect.StateCommitted, Owner: claim.Owner,
		Answer: effect.Answer{Kind: effect.AnswerResult, Body: []byte(`{"ok":1}`)},
	}
}

// within waits for what happens by itself.
func within(t *testing.T, d time.Duration, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(d); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %s", what, d)
		}
	}
}

func claimed(t *testing.T, d *postgres.Driver, p *store.Begin) *effect.Claim {
	t.Helper()
	begun, err := d.Begin(t.Context(), p)
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	if begun.Claim == nil {
		t.Fatalf("Begin = %s (%s)", begun.Verdict.Action, begun.Verdict.Reason)
	}
	return begun.Claim
}
