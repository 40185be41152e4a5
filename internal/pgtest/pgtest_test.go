package pgtest_test

import (
	"bufio"
	"io"
	"net"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/undolog/undolog/internal/pgcluster"
	"github.com/undolog/undolog/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNew_DatabasesAreSeparate(t *testing.T) {
	one, other := pgtest.New(t), pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), one.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "CREATE TABLE mine ()"); err != nil {
		t.Fatal(err)
	}
	there, err := pgx.Connect(t.Context(), other.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close(t.Context())
	var found bool
	if err := there.QueryRow(t.Context(), "SELECT to_regclass('mine') IS NOT NULL").Scan(&found); err != nil || found {
		t.Errorf("the table of one database in another: %t, %v", found, err)
	}
}

// What a flush costs is for benchmarks.
func TestNew_FlushesWhatIsMeasured(t *testing.T) {
	t.Setenv("UNDOLOG_TEST_POSTGRES", "")
	if got := flushes(t, pgtest.New(t)); got != "off" {
		t.Errorf("fsync is %s for tests", got)
	}
	testing.Benchmark(func(b *testing.B) {
		if got := flushes(t, pgtest.New(b)); got != "on" {
			t.Errorf("fsync is %s for benchmarks", got)
		}
	})
}

func flushes(t *testing.T, db *pgcluster.Database) (setting string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), "SHOW fsync").Scan(&setting); err != nil {
		t.Fatal(err)
	}
	return setting
}

func TestProxy_PassesADatabaseConnection(t *testing.T) {
	db := pgtest.New(t)
	p := pgtest.NewProxy(t, db.URL)
	conn, err := pgx.Connect(t.Context(), p.URL)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT 42").Scan(&n); err != nil || n != 42 {
		t.Errorf("SELECT 42 = %d, %v", n, err)
	}
	if to, from := p.Passed(); to == 0 || from == 0 {
		t.Errorf("%d and %d bytes passed", to, from)
	}
	p.CutAfter(pgtest.ToServer, 5)
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("Ping over a cut connection succeeded")
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
	p.Refuse(true)
	if _, err := pgx.Connect(t.Context(), p.URL); err == nil {
		t.Error("a refused connection was made")
	}
}

// echo is a server that answers each byte with the same, and reports what each connection brought.
func echo(t *testing.T) (address string, got <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	brought := make(chan string, 8)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			var all strings.Builder
			_, _ = io.Copy(conn, io.TeeReader(conn, &all)) // ends with the connection
			conn.Close()
			brought <- all.String()
		}
	}()
	return "postgres://" + l.Addr().String() + "/", brought
}

func dial(t *testing.T, p *pgtest.Proxy) net.Conn {
	t.Helper()
	u, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, conn net.Conn, n int) string {
	t.Helper()
	buf := make([]byte, n)
	if _, err := io.ReadFull(conn, buf); err != nil {
		t.Fatal(err)
	}
	return string(buf)
}

func TestProxy_CutsAtTheByte(t *testing.T) {
	t.Run("on the way to the server", func(t *testing.T) {
		address, got := echo(t)
		p := pgtest.NewProxy(t, address)
		for n := range 6 {
			conn := dial(t, p)
			send(t, conn, "before")
			read(t, conn, 6)
			p.CutAfter(pgtest.ToServer, int64(n))
			send(t, conn, "12345")
			if want, have := "before12345"[:6+n], <-got; have != want {
				t.Errorf("cut after %d: the server got %q, want %q", n, have, want)
			}
			if p.Cuts() != n+1 {
				t.Errorf("%d cuts after %d", p.Cuts(), n+1)
			}
		}
	})
	t.Run("on the way to the client", func(t *testing.T) {
		address, got := echo(t)
		p := pgtest.NewProxy(t, address)
		for n := range 6 {
			conn := dial(t, p)
			p.CutAfter(pgtest.ToClient, int64(n))
			send(t, conn, "12345")
			back, _ := io.ReadAll(conn) // the connection may be reset
			if string(back) != "12345"[:n] || <-got != "12345" {
				t.Errorf("cut after %d: the client got %q", n, back)
			}
		}
	})
	t.Run("not when it is taken back", func(t *testing.T) {
		address, _ := echo(t)
		p := pgtest.NewProxy(t, address)
		p.CutAfter(pgtest.ToServer, 2)
		p.Disarm()
		conn := dial(t, p)
		send(t, conn, "12345")
		if got := read(t, conn, 5); got != "12345" {
			t.Errorf("got %q", got)
		}
	})
}

func TestProxy_GoesSilentAtTheByte(t *testing.T) {
	address, got := echo(t)
	p := pgtest.NewProxy(t, address)
	conn := dial(t, p)
	p.StallAfter(pgtest.ToServer, 3)
	send(t, conn, "12345")
	for p.Stalls() == 0 {
		runtime.Gosched()
	}
	conn.Close()
	select {
	case brought := <-got:
		t.Errorf("the server's connection ended with its client's, with %q", brought)
	default:
	}
	p.Drop()
	if brought := <-got; brought != "123" || p.Stalls() != 1 || p.Cuts() != 0 {
		t.Errorf("the server got %q, %d stalls, %d cuts", brought, p.Stalls(), p.Cuts())
	}
}

func TestProxy_Pause(t *testing.T) {
	address, _ := echo(t)
	p := pgtest.NewProxy(t, address)
	conn := dial(t, p)
	p.Pause(pgtest.ToClient)
	send(t, conn, "held\n")
	line := make(chan string, 1)
	go func() {
		s, _ := bufio.NewReader(conn).ReadString('\n')
		line <- s
	}()
	for to, _ := p.Passed(); to < 5; to, _ = p.Passed() { // until the server has it
		runtime.Gosched()
	}
	select {
	case s := <-line:
		t.Errorf("%q came in a pause", s)
	default:
	}
	p.Resume()
	if s := <-line; s != "held\n" {
		t.Errorf("got %q", s)
	}
}

func TestProxy_DropEndsEveryConnection(t *testing.T) {
	address, _ := echo(t)
	p := pgtest.NewProxy(t, address)
	conn := dial(t, p)
	send(t, conn, "x")
	read(t, conn, 1)
	p.Drop()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection lives")
	}
}
