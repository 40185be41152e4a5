package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptrace"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/internal/mcptest"
)

// Three gateways and two interceptor servers on one database: whoever is asked, and however many at once,
// a call is made once.
func TestReplicas_identicalCallsAreOneEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t).onPostgres()
	w.server = append(w.server, "--no-sync")
	sides := w.sides(3, 2)
	const rounds = 20
	for round := range rounds {
		key := fmt.Sprintf(`"idempotencyKey":"round-%d"`, round)
		answers := allAtOnce(t, sides, 4, func(s side, i int) (mcptest.Message, error) {
			return s(t.Context(), fmt.Sprint(round*100+i), "charge", charge10, key)
		})
		w.wantEffects("charge", round+1)
		said := map[string]int{}
		for _, m := range answers {
			said[toolText(t, m)]++
		}
		if len(said) != 1 {
			t.Errorf("round %d was answered in different ways: %v", round, said)
		}
	}
	const different = 200
	answers := allAtOnce(t, sides, different/len(sides), func(s side, i int) (mcptest.Message, error) {
		return s(t.Context(), fmt.Sprint(100_000+i), "append_note", fmt.Sprintf(`{"text":"n%d"}`, i), "")
	})
	for _, m := range answers {
		toolText(t, m)
	}
	w.wantEachNote(different)
	for _, e := range w.log("--state", "in_doubt,claimed") {
		t.Errorf("left behind: %+v", e)
	}
}

// toolText is the text of an answer that is no error.
func toolText(t *testing.T, m mcptest.Message) string {
	t.Helper()
	r, err := m.Tool()
	if err != nil || r.IsError || len(r.Content) == 0 {
		t.Errorf("answered %s (%v)", m.Raw, err)
		return ""
	}
	return r.Content[0].Text
}

// wantEachNote fails unless each of n notes was taken once.
func (w *world) wantEachNote(n int) {
	w.t.Helper()
	seen := map[string]int{}
	for _, e := range w.entries("append_note") {
		var a struct{ Text string }
		if err := json.Unmarshal(e.Arguments, &a); err != nil {
			w.t.Fatal(err)
		}
		seen[a.Text]++
	}
	for i := range n {
		if got := seen[fmt.Sprintf("n%d", i)]; got != 1 {
			w.t.Errorf("note %d took effect %d times", i, got)
		}
	}
}

// What one replica settles is told by the others to who waits there.
func TestReplicas_wakeEachOthersJoiners(t *testing.T) {
	t.Parallel()
	w := newWorld(t).onPostgres()
	hold := w.dir + "/go"
	w.faults(faults.Set{"charge": {WaitAfter: hold}})
	sides := w.sides(3, 2)
	type answered struct {
		m   mcptest.Message
		at  time.Time
		err error
	}
	answers := make([]answered, len(sides))
	var sent, all sync.WaitGroup
	call := func(i int) {
		wrote := sync.OnceFunc(sent.Done) // a side may make several requests
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { wrote() },
		})
		a := &answers[i]
		a.m, a.err = sides[i](ctx, fmt.Sprint(i), "charge", charge10, `"idempotencyKey":"k"`)
		a.at = time.Now()
	}
	sent.Add(1)
	all.Go(func() { call(0) })
	w.awaitEffects("charge", 1)
	sent.Add(len(sides) - 1)
	for i := 1; i < len(sides); i++ {
		all.Go(func() { call(i) })
	}
	sent.Wait()
	touch(t, hold)
	all.Wait()
	for i, a := range answers {
		if a.err != nil || replayed(t, a.m) != (i > 0) {
			t.Errorf("side %d: %s (%v)", i, a.m.Raw, a.err)
		}
		if late := a.at.Sub(answers[0].at); late > 10*time.Second { // of 45 that one waits
			t.Errorf("side %d was told %s after it was settled", i, late)
		} else {
			t.Logf("side %d was told %s after the first", i, late)
		}
	}
	w.wantEffects("charge", 1)
}

// A replica that is killed takes with it what it was executing, and nothing else: that one call is in doubt
// until a person settles it, which holds on every replica at once.
func TestReplicas_killedAtEachEdge(t *testing.T) {
	for _, edge := range edges {
		t.Run(edge.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "faults").onPostgres()
			others := []side{through(w.gatewayReplica(nil)), through(w.gatewayReplica(nil))}
			load := startNotes(t, others)
			w.loseReplica(edge.name)
			load.end(t, w)
			state := edge.state
			if state == "" {
				state = "none"
			}
			w.eventually("the call to be "+state, func() bool { return w.stateOf("charge") == state })
			if doubtful := len(w.log("--state", "in_doubt")); doubtful > 1 || doubtful == 1 && state != "in_doubt" {
				t.Errorf("%d calls are in doubt, and only one can be", doubtful)
			}
			w.settleElsewhere(edge.state, others)
		})
	}
}

// loseReplica makes a charge through a gateway of its own that dies at the edge.
func (w *world) loseReplica(edge string) {
	w.t.Helper()
	env := []string{"UNDOLOG_FAULT=" + edge}
	kill := edge == "after-effect"
	if kill {
		env = nil
		w.faults(faults.Set{"charge": {DelayAfterMs: 10_000, Times: 1}})
	}
	const key = `"idempotencyKey":"k"`
	dying := w.gatewayReplica(env, "--heartbeat", "2s")
	if !kill {
		w.dieOf(through(dying), "charge", charge10, key)
		<-dying.exited
		return
	}
	answered := w.untilEffect(1, through(dying), "charge", charge10, key)
	if err := dying.cmd.Process.Kill(); err != nil {
		w.t.Error(err)
	}
	<-dying.exited
	if got := <-answered; got.err == nil {
		w.t.Errorf("at %s: the call was answered %s", edge, got.m.Raw)
	}
}

// settleElsewhere makes the lost call again through each of the others, and settles it if it is in doubt.
func (w *world) settleElsewhere(state string, others []side) {
	w.t.Helper()
	again := func(i int) mcptest.Message {
		m, err := others[i](w.t.Context(), fmt.Sprint(i+2), "charge", charge10, `"idempotencyKey":"k"`)
		if err != nil {
			w.t.Fatal(err)
		}
		return m
	}
	before := w.effects("charge")
	first := again(0)
	switch state {
	case "in_doubt":
		wantOutcome(w.t, first, "in_doubt")
		w.wantEffects("charge", before)
		w.ran("resolve", w.only("charge").ID, "--committed", "--reason", "it is in the ledger")
		for i := range others {
			if m := again(i); !replayed(w.t, m) {
				w.t.Errorf("replica %d does not know what a person said: %s", i, m.Raw)
			}
		}
		w.wantEffects("charge", before)
	case "committed":
		wantReplay(w.t, first, again(1))
		w.wantEffects("charge", 1)
	default:
		if replayed(w.t, first) || !replayed(w.t, again(1)) {
			w.t.Errorf("nothing was recorded, and it did not run: %s", first.Raw)
		}
		w.wantEffects("charge", 1)
	}
}

// stateOf is the state of the only effect of a tool; "none" when there is none.
func (w *world) stateOf(tool string) string {
	w.t.Helper()
	all := w.log("--tool", tool)
	if len(all) != 1 {
		return "none"
	}
	return all[0].State
}

// notes is a stream of calls, each of them another, that leaves the machine time for others.
type notes struct {
	stop    context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex
	next    int
}

func startNotes(t *testing.T, sides []side) *notes {
	ctx, stop := context.WithCancel(t.Context())
	n := &notes{stop: stop}
	for _, s := range sides {
		n.running.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				<-tick.C
				i := n.number()
				m, err := s(t.Context(), fmt.Sprint(1000+i), "append_note", fmt.Sprintf(`{"text":"n%d"}`, i), "")
				if err != nil || m.Error != nil {
					t.Errorf("note %d: %s (%v)", i, m.Raw, err)
					return
				}
			}
		})
	}
	return n
}

func (n *notes) number() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next++
	return n.next - 1
}

// end waits for the last answer: each call was answered, and made once.
func (n *notes) end(t *testing.T, w *world) {
	t.Helper()
	n.stop()
	n.running.Wait()
	if n.next == 0 {
		t.Error("nobody called meanwhile")
	}
	w.wantEachNote(n.next)
}

// A server that a gateway starts is not told where the log is, and with which password.
func TestReplicas_serversGetNoAddressOfTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t).onPostgres()
	seen := w.dir + "/environment"
	w.server = append([]string{"sh", "-c", `env > "$0"; exec "$@"`, seen}, w.server...)
	cmd := exec.Command(w.undolog, w.gatewayArgs()...)
	cmd.Env = append(cmd.Environ(), "UNDOLOG_DB="+w.db)
	agent := mcptest.StartCommand(t, cmd)
	agent.Initialize(protocol)
	if m := agent.Call("1", "charge", charge10); m.Error != nil {
		t.Fatalf("error %s", m.Error)
	}
	if e := w.only("charge"); e.State != "committed" {
		t.Errorf("state = %s", e.State)
	}
	environment := readFile(t, seen)
	if !strings.Contains(environment, "PATH=") || strings.Contains(environment, "postgres://") {
		t.Errorf("the server got the environment\n%s", environment)
	}
}
