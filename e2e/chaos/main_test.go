package chaos_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	soak  = flag.Bool("soak", false, "run what takes minutes")
	stops = flag.Int("stops", 0, "how often PostgreSQL is stopped; 0: 6 times, or 500 with -soak")
)

// The tests wait most of the time, for databases and for times to be over: more of them at once cost little.
func TestMain(m *testing.M) {
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue && runtime.GOMAXPROCS(0) < 4 && !*soak {
		if err := p.Value.Set("4"); err != nil {
			panic(err) // it is a number
		}
	}
	goleak.VerifyTestMain(patient{m})
}

// patient gives goroutines that end by themselves longer to do so than goleak does: connections that were given up are
// closed in the background.
type patient struct{ *testing.M }

func (p patient) Run() int {
	code := p.M.Run()
	for deadline := time.Now().Add(time.Minute); goleak.Find() != nil && time.Now().Before(deadline); {
	}
	return code
}

// scaled is one of two sizes of a test.
func scaled[T any](short, long T) T {
	if *soak {
		return long
	}
	return short
}

// rest lets time pass in which others work; false when the test ended meanwhile.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// upTo is a random time.
func upTo(d time.Duration) time.Duration { return rand.N(d) }

// eventually waits for what happens by itself.
func eventually(t *testing.T, d time.Duration, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !is(); rest(t.Context(), 50*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %s", what, d)
		}
	}
}
