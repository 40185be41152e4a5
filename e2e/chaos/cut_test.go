package chaos_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/undolog/undolog/internal/pgcluster"
	"github.com/undolog/undolog/internal/pgtest"
	"github.com/undolog/undolog/store/postgres"
)

// path is a way to the database on which connections break.
type path struct {
	name    string
	proxy   *pgtest.Proxy
	address string // through the proxy
	direct  string
}

func paths(t *testing.T) []path {
	t.Helper()
	plain, before, behind := pgtest.New(t), pgtest.New(t), pgtest.New(t)
	atDatabase := pgtest.NewProxy(t, plain.URL)
	atBouncer := pgtest.NewProxy(t, pgtest.NewBouncer(t, before, nil).URL)
	atBack := pgtest.NewProxy(t, behind.URL)
	through := &pgcluster.Database{Name: behind.Name, Password: behind.Password, URL: atBack.URL}
	return []path{
		{"before the database", atDatabase, atDatabase.URL, plain.URL},
		{"before PgBouncer", atBouncer, atBouncer.URL, before.URL},
		{"behind PgBouncer", atBack, pgtest.NewBouncer(t, through, &pgcluster.BouncerOptions{PoolSize: 2}).URL, behind.URL},
	}
}

// A connection is cut after any number of bytes of a whole call, its Begin and its Settle.
func TestConnections_cutAtAnyByteOfACall(t *testing.T) {
	t.Parallel()
	for _, path := range paths(t) {
		t.Run(path.name, func(t *testing.T) {
			t.Parallel()
			b := newBroken(t, path, 1, nil)
			for _, way := range []pgtest.Direction{pgtest.ToServer, pgtest.ToClient} {
				length := b.length(way)
				for at := 0; at <= length; at += scaled(97, 1) {
					path.proxy.CutAfter(way, int64(at))
					b.wantCharged(fmt.Sprintf("cut after %d of %d bytes", at, length))
					path.proxy.Disarm()
				}
			}
			if path.proxy.Cuts() == 0 {
				t.Error("nothing was cut")
			}
			b.end()
			t.Logf("%d cuts", path.proxy.Cuts())
		})
	}
}

// A connection goes silent after any number of bytes of a call, and neither side learns of it for long. (The
// pool gives the place of a connection that it gave up on to another only after some seconds.)
func TestConnections_silentAtAnyByteOfACall(t *testing.T) {
	t.Parallel()
	for _, path := range paths(t) {
		t.Run(path.name, func(t *testing.T) {
			t.Parallel()
			b := newBroken(t, path, 16, &postgres.Options{Patience: 15 * time.Second})
			for _, way := range []pgtest.Direction{pgtest.ToServer, pgtest.ToClient} {
				length := b.length(way)
				for at := 0; at < length; at += max(1, length/scaled(2, 40)) {
					when := fmt.Sprintf("silent after %d of %d bytes", at, length)
					path.proxy.StallAfter(way, int64(at))
					got := b.call(b.next())
					path.proxy.Disarm()
					b.wantCharged("the next call, " + when)
					path.proxy.Drop() // the server learns of it
					if got.outcome != wasCharged {
						t.Logf("%s: %s", when, got.outcome)
					}
				}
			}
			if path.proxy.Stalls() == 0 {
				t.Error("nothing went silent")
			}
			b.end()
			t.Logf("%d went silent", path.proxy.Stalls())
		})
	}
}

// broken is a replica whose connection breaks.
type broken struct {
	t       *testing.T
	proxy   *pgtest.Proxy
	replica *replica
	load    *load

	calls, blocked int // of those that are to be charged
}

func newBroken(t *testing.T, p path, conns int, opts *postgres.Options) *broken {
	t.Helper()
	r := newReplica(t, withParameter(t, p.address, "pool_max_conns", strconv.Itoa(conns)), steady, opts)
	tl := newTool(t, func(context.Context) {})
	b := &broken{t: t, proxy: p.proxy, replica: r, load: &load{
		t: t, tool: tl, replicas: []*replica{newReplica(t, p.direct, steady, nil)}, stop: func() {},
	}}
	b.wantCharged("the first call")
	return b
}

// next is the number of a call that the tool answers as it should.
func (b *broken) next() int {
	n := b.load.numbers.Add(1)
	for n%16 <= lostBefore {
		n = b.load.numbers.Add(1)
	}
	return int(n)
}

// length is how many bytes of a call go that way.
func (b *broken) length(way pgtest.Direction) int {
	b.t.Helper()
	var sent, got int64
	b.wantCharged("a call that is measured", func() { sent, got = b.proxy.Passed() })
	sentNow, gotNow := b.proxy.Passed()
	if way == pgtest.ToServer {
		return int(sentNow - sent)
	}
	return int(gotNow - got)
}

func (b *broken) call(n int) told {
	return b.load.callOn(b.replica, n)
}

// wantCharged makes a call, and another when it was not sent: on a busy machine the heart of a replica can pause for
// longer than it is trusted. It calls before, if any, ahead of each.
func (b *broken) wantCharged(when string, before ...func()) {
	b.t.Helper()
	eventually(b.t, time.Minute, "charge, "+when, func() bool {
		for _, f := range before {
			f()
		}
		b.calls++
		got := b.call(b.next())
		switch got.outcome {
		case wasCharged:
			return true
		case wasBlocked:
			b.blocked++
		default:
			b.t.Fatalf("%s: call %d was told %s", when, got.n, got.outcome)
		}
		return false
	})
}

// end compares what happened. That calls are not sent is for a busy machine, not for broken connections.
func (b *broken) end() {
	b.t.Helper()
	if b.blocked > b.calls/5 {
		b.t.Errorf("%d of %d calls that the proxy let pass, or that could be tried again, were not sent", b.blocked, b.calls)
	}
	b.load.reckon()
}
