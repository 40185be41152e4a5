package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/pgcluster"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/postgres"
)

// replica is a log on the database. One that looks for what others do once an hour hears of it or never learns.
type replica struct {
	*store.Log
	driver *postgres.Driver
}

func newReplica(t *testing.T, url string, lookEvery time.Duration) *replica {
	t.Helper()
	return newReplicaWith(t, url, lookEvery, nil)
}

func newReplicaWith(t *testing.T, url string, lookEvery time.Duration, opts *postgres.Options) *replica {
	t.Helper()
	d, err := postgres.Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	l, err := store.Open(d, &store.Options{LookEvery: lookEvery})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return &replica{l, d}
}

func (r *replica) claim(t *testing.T, n int) effect.Claim {
	t.Helper()
	begun, err := r.Begin(t.Context(), callOf(t, n))
	if err != nil || begun.Claim == nil {
		t.Fatalf("begin %d: %v", n, err)
	}
	return *begun.Claim
}

func (r *replica) settle(t *testing.T, c effect.Claim) {
	t.Helper()
	answer := effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{Kind: effect.AnswerResult, Body: []byte(`{}`)}}
	if _, err := r.Settle(t.Context(), c, effect.DefaultContract(nil, false), answer); err != nil {
		t.Fatal(err)
	}
}

// join waits for a claim and sends how that ended.
func (r *replica) join(t *testing.T, c effect.Claim) <-chan error {
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	go func() {
		_, err := r.Wait(ctx, c.Tenant, c.Effect)
		ended <- err
	}()
	return ended
}

func callOf(t *testing.T, n int) *store.BeginParams {
	t.Helper()
	c := effect.DefaultContract(nil, false)
	call := &effect.Call{Tenant: "acme", Principal: "agent:ada", Server: "bank", Tool: "pay", Key: "key-" + string(rune('a'+n)), Arguments: []byte(`{}`)}
	id, err := c.Identify(call)
	if err != nil {
		t.Fatal(err)
	}
	return &store.BeginParams{Call: call, Identity: id, Contract: c}
}

// awaitListener returns the server's process that says, for somebody, what is waited for, when it is not one of
// those before.
func awaitListener(t *testing.T, conn *pgx.Conn, before ...int32) (pid int32) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := conn.QueryRow(t.Context(), `
			SELECT COALESCE(MIN(pid), 0)
			FROM pg_locks
			WHERE locktype = 'advisory' AND mode = 'ShareLock' AND objsubid = 2 AND objid <> 0 AND granted AND pid <> ALL ($1)
			  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, append([]int32{0}, before...)).Scan(&pid)
		if err != nil {
			t.Fatal(err)
		}
		if pid != 0 {
			return pid
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("nobody listens")
		}
	}
}

func TestWait_hearsOfOtherReplicas(t *testing.T) {
	for name, parameter := range map[string][2]string{"with a pool of sixteen": {"pool_max_conns", "16"}, "with a pool of two": {"pool_max_conns", "2"}} {
		t.Run(name, func(t *testing.T) {
			db := migrated.New(t)
			url := withParameter(t, db.URL, parameter[0], parameter[1])
			one, other := newReplica(t, url, time.Hour), newReplica(t, url, time.Hour)
			watch := connect(t, db.URL)
			for n := range 10 {
				claim := one.claim(t, n)
				ended := other.join(t, claim)
				awaitListener(t, watch)
				one.settle(t, claim)
				if err := <-ended; err != nil {
					t.Fatalf("join %d: %v", n, err)
				}
			}
			if heard := other.driver.Stats().Heard; heard == 0 {
				t.Error("nothing was heard")
			}
		})
	}
}

func TestWait_hearsAgainAfterItsConnectionWasEnded(t *testing.T) {
	db := migrated.New(t)
	one, other := newReplica(t, db.URL, time.Hour), newReplica(t, db.URL, time.Hour)
	watch := connect(t, db.URL)
	claim := one.claim(t, 0)
	ended := other.join(t, claim)
	first := awaitListener(t, watch)
	if _, err := watch.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, first); err != nil {
		t.Fatal(err)
	}
	awaitListener(t, watch, first)
	one.settle(t, claim)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// Who notifies takes locks for a moment, and may go silent over them: the server holds them for as long as it takes
// the connection for alive. Who listens waits for them no longer than anybody for a lock, whatever its patience.
func TestWait_doesNotQueueBehindASilentNotifier(t *testing.T) {
	db := migrated.New(t)
	one := newReplica(t, db.URL, time.Hour)
	other := newReplicaWith(t, db.URL, time.Hour, &postgres.Options{Patience: time.Hour})
	watch, silent := connect(t, db.AdminURL), connect(t, db.URL)
	execute(t, silent, `BEGIN`)
	execute(t, silent, `SELECT pg_advisory_xact_lock($1, 0)`, 0x756e646f)
	claim := one.claim(t, 0)
	ended := other.join(t, claim)
	var pid int32
	within(t, time.Minute, "session that waits to listen", func() bool { pid = queued(t, watch); return pid != 0 })
	within(t, time.Minute, "end of its wait", func() bool { return queued(t, watch) != pid })
	execute(t, silent, `ROLLBACK`)
	awaitListener(t, watch)
	one.settle(t, claim)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// queued is the server's process that waits for an advisory lock; 0: none does.
func queued(t *testing.T, conn *pgx.Conn) (pid int32) {
	t.Helper()
	err := conn.QueryRow(t.Context(), `
		SELECT COALESCE(MIN(pid), 0)
		FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'advisory'`).Scan(&pid)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// What was settled while nobody listened yet is found by who begins to.
func TestWait_looksWhenItBeginsToListen(t *testing.T) {
	db := migrated.New(t)
	one, other := newReplica(t, db.URL, time.Hour), newReplica(t, db.URL, time.Hour)
	for n := range 10 {
		claim := one.claim(t, n)
		ended := other.join(t, claim)
		one.settle(t, claim)
		if err := <-ended; err != nil {
			t.Fatalf("join %d: %v", n, err)
		}
	}
}

func TestWait_throughPgBouncerLooksByItself(t *testing.T) {
	db := migrated.New(t)
	bouncer := pgtest.NewBouncer(t, db, &pgcluster.BouncerOptions{PoolSize: 4})
	direct, behind := newReplica(t, db.URL, time.Hour), newReplica(t, bouncer.URL, 50*time.Millisecond)
	claim := direct.claim(t, 0)
	ended := behind.join(t, claim)
	direct.settle(t, claim)
	if err := <-ended; err != nil {
		t.Errorf("behind PgBouncer: %v", err)
	}
	if heard := behind.driver.Stats().Heard; heard != 0 {
		t.Errorf("heard %d where a session is nobody's own", heard)
	}
	claim = behind.claim(t, 1)
	ended = direct.join(t, claim)
	awaitListener(t, connect(t, db.URL))
	behind.settle(t, claim) // to tell needs no session
	if err := <-ended; err != nil {
		t.Errorf("of one behind PgBouncer: %v", err)
	}
}

// A notification says nothing of whose effect it is, and none is sent of what nobody waits for.
func TestNotifications_sayNothing(t *testing.T) {
	db := migrated.New(t)
	one, other := newReplica(t, db.URL, time.Hour), newReplica(t, db.URL, time.Hour)
	watch, eavesdropper := connect(t, db.URL), connect(t, db.URL)
	if _, err := eavesdropper.Exec(t.Context(), `LISTEN undolog`); err != nil {
		t.Fatal(err)
	}
	one.settle(t, one.claim(t, 0))
	claim := one.claim(t, 1)
	ended := other.join(t, claim)
	awaitListener(t, watch)
	one.settle(t, claim)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	within(t, time.Minute, "the notification to be counted", func() bool { return one.driver.Stats().Told > 0 })
	if _, err := watch.Exec(t.Context(), `NOTIFY undolog, 'no more'`); err != nil {
		t.Fatal(err)
	}
	var heard []string
	for len(heard) == 0 || heard[len(heard)-1] != "no more" {
		n, err := eavesdropper.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, n.Payload)
	}
	if len(heard) != 2 || strings.Trim(heard[0], "-0123456789") != "" {
		t.Errorf("heard %q, want one number and the end", heard)
	}
}
