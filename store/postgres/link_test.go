package postgres_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store/postgres"
)

// pairLinked is a linked connection that is read eagerly, and the other end of it.
func pairLinked(t *testing.T) (link, other net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	link, err = postgres.Linked((&net.Dialer{}).DialContext)(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close(); other.Close() })
	if !postgres.ReadEagerly(link) {
		t.Fatal("no link to be read eagerly")
	}
	return link, other
}

func TestLink_isReadLikeAnyConnection(t *testing.T) {
	t.Run("what comes", func(t *testing.T) {
		link, other := pairLinked(t)
		go func() {
			other.Write([]byte("first"))
			other.Write([]byte("second"))
			other.Close()
		}()
		got, err := io.ReadAll(link)
		if string(got) != "firstsecond" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("what comes long after it was waited for in the kernel", func(t *testing.T) {
		link, other := pairLinked(t)
		later := time.AfterFunc(5*postgres.Eagerness, func() { other.Write([]byte("late")) })
		defer later.Stop()
		got := make([]byte, 4)
		if _, err := io.ReadFull(link, got); string(got) != "late" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("a deadline set meanwhile ends the wait", func(t *testing.T) {
		link, _ := pairLinked(t)
		later := time.AfterFunc(time.Millisecond, func() { link.SetReadDeadline(time.Now()) })
		defer later.Stop()
		if _, err := link.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want deadline exceeded", err)
		}
	})
	t.Run("Close meanwhile ends the wait", func(t *testing.T) {
		link, _ := pairLinked(t)
		later := time.AfterFunc(time.Millisecond, func() { link.Close() })
		defer later.Stop()
		if _, err := link.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v, want closed", err)
		}
	})
}

func TestLink_isFoundBelowTLS(t *testing.T) {
	link, _ := pairLinked(t)
	if !postgres.ReadEagerly(tls.Client(link, &tls.Config{ServerName: "database"})) {
		t.Error("a connection with TLS is not read eagerly")
	}
}

func TestLink_isReadEagerlyForALoneCaller(t *testing.T) {
	d := open(t, withParameter(t, pgtest.New(t).URL, "pool_max_conns", "1"), nil)
	if _, err := d.Begin(t.Context(), keyed(t, "", "key-1")); err != nil {
		t.Fatal(err)
	}
	if !d.IsEager(t.Context()) {
		t.Error("a lone caller's answer was not read eagerly")
	}
}
