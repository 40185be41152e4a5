package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/internal/mcptest"
	"github.com/undolog/undolog/internal/pgcluster"
	"github.com/undolog/undolog/internal/pgtest"
)

// The database is stopped, without a word to anybody: what changes something is not made and told so, reads
// run, what was under way is recorded when the database is back, and then everything goes on.
func TestDatabase_stopsAndComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "faults")
	clock := filepath.Join(w.dir, "clock")
	writeFile(t, clock, "0s")
	cluster := pgtest.NewCluster(t, nil)
	w.db = pgtest.NewOn(t, cluster).URL
	hold := w.dir + "/go"
	gateway := w.gatewayReplica([]string{"UNDOLOG_FAULT_CLOCK=" + clock}, "--db-wait", "6s")
	call := statelessCaller(t, gateway.url)
	if m := call("1", "charge", charge10, ""); m.Error != nil {
		t.Fatalf("error %s", m.Error)
	}
	w.faults(faults.Set{"refund": {WaitAfter: hold}})
	held := through(gateway).later(t, "2", "refund", `{"charge":"ch_1","amount":1}`, `"idempotencyKey":"held"`)
	w.awaitEffects("refund", 1)

	if err := cluster.Stop(pgcluster.Immediate); err != nil {
		t.Fatal(err)
	}
	writeFile(t, clock, "33s") // what was read of tools before is to be read anew
	from := time.Now()
	wantOutcome(t, call("3", "append_note", `{"text":"x"}`, ""), "unavailable")
	if took := time.Since(from); took > 20*time.Second {
		t.Errorf("a call was refused after %s, want after --db-wait, 6 s", took)
	}
	w.wantEffects("append_note", 0)
	var reads []time.Duration
	for range 3 {
		from := time.Now()
		if m := call("4", "list_charges", `{}`, ""); m.Error != nil {
			t.Errorf("a read did not run: %s", m.Error)
		}
		reads = append(reads, time.Since(from))
	}
	if slices.Min(reads) > 5*time.Second {
		t.Errorf("reads took %s: they wait for no database", reads)
	}
	wantStatus(t, gateway, "/healthz", http.StatusOK, "lives")
	wantStatus(t, gateway, "/readyz", http.StatusServiceUnavailable, "the effect log does not answer")
	wantStatus(t, gateway, "/metrics", http.StatusOK, "undolog_log_up 0\n")
	touch(t, hold)
	if got := <-held; got.err != nil || got.m.Error != nil {
		t.Errorf("what was under way was answered %s (%v)", got.m.Raw, got.err)
	}

	if err := cluster.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually("the gateway to be ready", func() bool { status, _ := gateway.get(t, "/readyz"); return status == http.StatusOK })
	wantStatus(t, gateway, "/metrics", http.StatusOK, "undolog_log_up 1\n")
	if m := call("5", "append_note", `{"text":"x"}`, ""); m.Error != nil {
		t.Errorf("error %s", m.Error)
	}
	w.wantEffects("append_note", 1)
	w.eventually("what was under way to be recorded", func() bool { return w.stateOf("refund") == "committed" })
	if m := call("6", "refund", `{"charge":"ch_1","amount":1}`, `"idempotencyKey":"held"`); !replayed(t, m) {
		t.Errorf("not answered from the record: %s", m.Raw)
	}
	w.wantEffects("refund", 1)
}

func wantStatus(t *testing.T, r *replica, path string, status int, text string) {
	t.Helper()
	if got, body := r.get(t, path); got != status || !strings.Contains(body, text) {
		t.Errorf("%s: status %d, want %d: %q, want in it %q", path, got, status, body, text)
	}
}

// A role that owns nothing serves with the rights that docs/postgres.md lists.
func TestDatabase_roleWithTheDocumentedGrants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	db := pgtest.New(t)
	w.db = db.URL
	w.ran("migrate", "up")
	role := db.Name + "_app"
	conn, err := pgx.Connect(t.Context(), db.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		if err := errors.Join(err, conn.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	_, grants, _ := strings.Cut(readFile(t, "../docs/postgres.md"), "```sql\nGRANT ")
	grants, _, found := strings.Cut("GRANT "+grants, "```")
	if !found {
		t.Fatal("docs/postgres.md lists no rights")
	}
	for _, sql := range []string{"CREATE ROLE " + role + " LOGIN PASSWORD 'secret'", strings.ReplaceAll(grants, "undolog_app", role)} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "secret")
	w.db = u.String()
	agent := w.agent()
	key := `"idempotencyKey":"k"`
	for _, id := range []string{"1", "2", "3"} {
		m, err := agent.Do(t.Context(), id, mcptest.ToolCall(id, "charge", charge10, key))
		if err != nil || m.Error != nil || replayed(t, m) != (id != "1") {
			t.Fatalf("call %s: %s (%v)", id, m.Raw, err)
		}
	}
	if m := agent.Call("4", "list_charges", `{}`); m.Error != nil {
		t.Errorf("a read: %s", m.Error)
	}
	agent.CloseStdin()
	if code := agent.Wait(); code != 0 {
		t.Errorf("the gateway exited with %d: %s", code, agent.Stderr())
	}
	w.ran("again", w.only("charge").ID, "--reason", "a test")
	w.ran("migrate", "status")
	if got := len(w.log()); got != 2 {
		t.Errorf("the log has %d effects, want 2", got)
	}
	if strings.Contains(agent.Stderr(), "ERROR") {
		t.Errorf("the gateway said:\n%s", agent.Stderr())
	}
}

// A SQLite log can be asked for the same; a file that was taken away is no log.
func TestAdmin_onSQLite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	serve := w.startReplica(w.command("serve", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"))
	wantStatus(t, serve, "/healthz", http.StatusOK, "lives")
	wantStatus(t, serve, "/readyz", http.StatusOK, "ready")
	wantStatus(t, serve, "/metrics", http.StatusOK, `undolog_file_bytes{file="database"} `)
	files, err := filepath.Glob(w.db + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	wantStatus(t, serve, "/readyz", http.StatusServiceUnavailable, "was removed")
	wantStatus(t, serve, "/healthz", http.StatusOK, "lives")
}

// What calls come to is counted, by names that are all there from the start.
func TestAdmin_countsCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withPolicy("version: 1\ntools:\n  - {tool: charge, tier: irreversible, approve: never}\n" +
		"  - {tool: refund, tier: irreversible, approve: always}\n  - {tool: append_note, tier: irreversible, deny: not today}\n")
	gateway := w.gatewayReplica(nil, "--hold", "0")
	wantStatus(t, gateway, "/metrics", http.StatusOK, `undolog_calls_total{outcome="ran"} 0`)
	call := statelessCaller(t, gateway.url)
	for n := range 3 {
		call(fmt.Sprint(n), "charge", charge10, `"idempotencyKey":"k"`)
	}
	call("3", "append_note", `{"text":"x"}`, "")
	call("4", "refund", `{"charge":"ch_1","amount":1}`, "")
	for _, line := range []string{
		`undolog_calls_total{outcome="ran"} 1`, `undolog_calls_total{outcome="replayed"} 2`, `undolog_calls_total{outcome="refused"} 2`,
		`undolog_calls_total{outcome="in_doubt"} 0`, `undolog_refused_calls_total{reason="denied"} 1`, `undolog_refused_calls_total{reason="approval_required"} 1`,
		`undolog_effects_in_doubt 0`, `undolog_approvals_waiting `,
	} {
		wantStatus(t, gateway, "/metrics", http.StatusOK, "\n"+line)
	}
}

// A replica that was told to end takes no more calls, and says so while it still answers those that it has.
func TestAdmin_notReadyWhileItEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hold := w.dir + "/go"
	w.faults(faults.Set{"charge": {WaitAfter: hold}})
	gateway := w.gatewayReplica(nil)
	held := through(gateway).later(t, "1", "charge", charge10, "")
	w.awaitEffects("charge", 1)
	if err := gateway.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	w.eventually("it to be no longer ready", func() bool { status, _ := gateway.get(t, "/readyz"); return status != http.StatusOK })
	wantStatus(t, gateway, "/readyz", http.StatusServiceUnavailable, "about to end")
	touch(t, hold)
	if got := <-held; got.err != nil || got.m.Error != nil {
		t.Errorf("the call that it had was answered %s (%v)", got.m.Raw, got.err)
	}
	<-gateway.exited
	if e := w.only("charge"); e.State != "committed" {
		t.Errorf("state = %s", e.State)
	}
}
