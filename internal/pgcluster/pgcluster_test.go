package pgcluster_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/undolog/undolog/internal/pgcluster"
)

// becomeOwner makes the test binary a process that starts a cluster and waits to be killed.
const becomeOwner = "UNDOLOG_TEST_OWNER_OF_CLUSTER"

func TestMain(m *testing.M) {
	if os.Getenv(becomeOwner) != "" {
		own()
		return
	}
	goleak.VerifyTestMain(m)
}

func own() {
	c, err := pgcluster.New(context.Background(), nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.PID(), filepath.Dir(c.Log()))
	select {}
}

func newCluster(t *testing.T, opts *pgcluster.Options) *pgcluster.Cluster {
	t.Helper()
	c, err := pgcluster.New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func newDatabase(t *testing.T, c *pgcluster.Cluster) *pgcluster.Database {
	t.Helper()
	db, err := pgcluster.CreateDatabase(t.Context(), c.URL())
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func query[T any](t *testing.T, conn *pgx.Conn, sql string) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(t.Context(), sql, pgx.QueryExecModeExec).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeExec); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestCluster_HasTheDurabilityOfTheDefaults(t *testing.T) {
	conn := connect(t, newCluster(t, nil).URL())
	got := map[string]string{}
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		got[name] = query[string](t, conn, "SHOW "+name)
	}
	want := map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got)\n%s", diff)
	}
}

func TestCluster_KeepsWhatIsCommittedHoweverItStops(t *testing.T) {
	c := newCluster(t, nil)
	db := newDatabase(t, c)
	execute(t, connect(t, db.URL), "CREATE TABLE kept (n int)")
	modes := []pgcluster.Mode{pgcluster.Fast, pgcluster.Immediate, pgcluster.Crash}
	for i, mode := range modes {
		execute(t, connect(t, db.URL), fmt.Sprintf("INSERT INTO kept VALUES (%d)", i))
		if err := c.Stop(mode); err != nil {
			t.Fatalf("Stop(%s): %v", mode, err)
		}
		if _, err := pgx.Connect(t.Context(), db.URL); err == nil {
			t.Fatalf("Stop(%s): it still takes connections", mode)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatalf("Start after %s: %v", mode, err)
		}
	}
	if n := query[int](t, connect(t, db.URL), "SELECT count(*) FROM kept"); n != len(modes) {
		t.Errorf("%d rows, want %d", n, len(modes))
	}
}

// Other test processes start clusters too: none may get the port of one that is stopped and will be started again.
func TestCluster_KeepsItsPortWhileItIsStopped(t *testing.T) {
	c := newCluster(t, nil)
	if err := c.Stop(pgcluster.Fast); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	if sign, err := net.ListenPacket("udp", u.Host); err == nil {
		sign.Close()
		t.Errorf("nothing says that %s is taken", u.Host)
	}
}

func TestCluster_SaysWhyItDoesNotStart(t *testing.T) {
	_, err := pgcluster.New(t.Context(), &pgcluster.Options{Settings: map[string]string{"shared_buffers": "none"}})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers"`) {
		t.Errorf("New = %v, want what the server said", err)
	}
}

// Whoever shares a server keeps no more of it than its address.
func TestCluster_LivesWithoutBeingReferredTo(t *testing.T) {
	forgotten := forget(t)
	for range 3 {
		runtime.GC() // finalizers run after one, and what they let go is collected by the next
	}
	connect(t, forgotten)
}

// forget starts a cluster of which nobody keeps more than the address. It ends with the test process.
func forget(t *testing.T) string {
	t.Helper()
	c, err := pgcluster.New(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.URL()
}

// A test process that is killed in mid-test leaves no server and no directory.
func TestCluster_EndsWithTheProcessThatStartedIt(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), becomeOwner+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("owner of cluster: %v", err)
	}
	pid, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	eventually(t, "the directory is removed", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server has ended", func() bool { return !lives(n) }) // it is not waited for longer than a while
}

// lives reports whether the process runs; one that has ended and that nobody has collected does not.
func lives(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

func TestDatabase_OwnerIsBoundByRowLevelSecurity(t *testing.T) {
	c := newCluster(t, nil)
	db := newDatabase(t, c)
	conn := connect(t, db.URL)
	if query[bool](t, conn, "SELECT rolsuper OR rolbypassrls OR rolcreaterole FROM pg_roles WHERE rolname = current_user") {
		t.Error("the owner may more than own")
	}
	execute(t, conn, "CREATE TABLE its_own ()")
	if got := query[string](t, connect(t, db.AdminURL), "SELECT current_user || ' in ' || current_database()"); got != "postgres in "+db.Name {
		t.Errorf("AdminURL is %s", got)
	}
}

func TestDatabase_DropLeavesNothing(t *testing.T) {
	c := newCluster(t, nil)
	db := newDatabase(t, c)
	connect(t, db.URL) // does not keep it
	if err := db.Drop(t.Context(), c.URL()); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, c.URL())
	if n := query[int](t, conn, "SELECT (SELECT count(*) FROM pg_database WHERE datname LIKE 'undolog%') + (SELECT count(*) FROM pg_roles WHERE rolname LIKE 'undolog%')"); n != 0 {
		t.Errorf("%d databases and roles are left", n)
	}
}

func TestBouncer_SharesItsConnectionsByTransaction(t *testing.T) {
	db := newDatabase(t, newCluster(t, nil))
	b, err := pgcluster.NewBouncer(t.Context(), db, &pgcluster.BouncerOptions{PoolSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	one, other := connect(t, b.URL), connect(t, b.URL)
	if a, b := query[int](t, one, "SELECT pg_backend_pid()"), query[int](t, other, "SELECT pg_backend_pid()"); a != b {
		t.Errorf("two clients have the servers %d and %d, with a pool of one", a, b)
	}
}
