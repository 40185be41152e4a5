package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/examples/payments/ledger"
	"github.com/undolog/undolog/internal/mcptest"
	"github.com/undolog/undolog/internal/pgtest"
)

// The same with the programs themselves: three gateways, each with its payments server, on one ledger.
func TestStops_gatewaysAgreeWithTheLedger(t *testing.T) {
	t.Parallel()
	cluster := pgtest.NewCluster(t, nil)
	s := newShop(t, pgtest.NewOn(t, cluster).URL)
	stopCalls := s.startCalls(48)
	for range howOften(3, 100) {
		rest(t.Context(), upTo(700*time.Millisecond))
		stopFor(t, cluster, upTo(200*time.Millisecond))
		before := s.charged.Load()
		eventually(t, time.Minute, "answer after a stop", func() bool { return s.charged.Load() > before })
	}
	stopCalls()
	s.compare()
	s.callAllAgain()
	s.compare()
	t.Logf("%d identities, %d charged calls, %d charges, %d calls without an answer", s.numbers.Load(), s.charged.Load(), len(s.charges()), s.unknown.Load())
}

// shop is gateways that share a log, before servers that share a ledger.
type shop struct {
	t        *testing.T
	gateways []*mcptest.Stdio
	ledger   string

	numbers, requests, charged, unknown atomic.Int64

	mu   sync.Mutex
	told map[int]string // the charge that a call was told of
}

func newShop(t *testing.T, address string) *shop {
	t.Helper()
	s := &shop{t: t, ledger: filepath.Join(t.TempDir(), "ledger.jsonl"), told: map[int]string{}}
	undolog, payments := mcptest.Build(t, "./cmd/undolog"), mcptest.Build(t, "./examples/payments")
	for range 3 {
		cmd := exec.Command(undolog, "gateway", "--heartbeat", "2s", "--name", "payments", "--", payments, "--ledger", s.ledger, "--no-sync")
		cmd.Env = append(os.Environ(), "UNDOLOG_DB="+address)
		g := mcptest.StartCommand(t, cmd)
		g.Initialize("2025-11-25")
		s.gateways = append(s.gateways, g)
	}
	return s
}

// startCalls has callers make calls, a third of them ones that were made before, until it is stopped.
func (s *shop) startCalls(callers int) (stop func()) {
	var running sync.WaitGroup
	ended := make(chan struct{})
	for range callers {
		running.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
					s.call(s.next())
				}
			}
		})
	}
	return func() {
		close(ended)
		running.Wait()
	}
}

func (s *shop) next() int {
	if last := s.numbers.Load(); last > 0 && rand.N(3) == 0 {
		return int(last - rand.N(min(last, 100)))
	}
	return int(s.numbers.Add(1))
}

var chargeID = regexp.MustCompile(`ch_[0-9]+`)

func (s *shop) call(n int) {
	id := fmt.Sprintf(`"r%d"`, s.requests.Add(1))
	params := mcptest.ToolParams("charge", fmt.Sprintf(`{"account":"a","amount":%d,"n":%d}`, n, n), fmt.Sprintf(`"idempotencyKey":"k%d"`, n))
	m, err := s.gateways[rand.N(len(s.gateways))].Do(s.t.Context(), id, mcptest.Request(id, "tools/call", params))
	if err != nil {
		s.t.Errorf("call %d: %v", n, err)
		return
	}
	if m.Error == nil {
		s.charged.Add(1)
		s.note(n, chargeID.FindString(string(m.Result)))
		return
	}
	s.unknown.Add(1)
	switch outcome, _ := read(&chain.Reply{Error: m.Error}); outcome {
	case "unavailable", "in_doubt", "in_progress":
	default:
		s.t.Errorf("call %d was told %s", n, m.Error)
	}
}

// note fails the test when two callers were told of two charges for one call.
func (s *shop) note(n int, charge string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.told[n]; was != "" && was != charge {
		s.t.Errorf("call %d was told of %s and of %s", n, was, charge)
	}
	s.told[n] = charge
}

func (s *shop) callAllAgain() {
	last := int(s.numbers.Load())
	s.numbers.Store(0)
	var callers sync.WaitGroup
	for range 48 {
		callers.Go(func() {
			for n := int(s.numbers.Add(1)); n <= last; n = int(s.numbers.Add(1)) {
				s.call(n)
			}
		})
	}
	callers.Wait()
	s.numbers.Store(int64(last))
}

func (s *shop) charges() map[int][]string {
	s.t.Helper()
	entries, err := ledger.Read(s.ledger)
	if err != nil {
		s.t.Fatal(err)
	}
	charges := map[int][]string{}
	for _, e := range entries {
		n := numberOf(s.t, e.Arguments)
		charges[n] = append(charges[n], e.ID)
	}
	return charges
}

// compare says where what callers were told is not what the servers did.
func (s *shop) compare() {
	s.t.Helper()
	charges := s.charges()
	for n, ids := range charges {
		if len(ids) != 1 {
			s.t.Errorf("call %d took effect %d times: %v", n, len(ids), ids)
		}
	}
	for n, told := range s.told {
		if ids := charges[n]; len(ids) != 1 || ids[0] != told {
			s.t.Errorf("call %d was told of %s, the servers did %v", n, told, ids)
		}
	}
}
