package e2e_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/internal/mcptest"
)

var (
	trials    = flag.Int("trials", 36, "how many runs the fault harness makes")
	trialSeed = flag.Uint64("trial-seed", 1, "seed of the first of them; the next has the next number")
)

// Real processes under random faults: no call happens twice, nothing that happened has no record, nothing is
// committed that did not happen, and whatever is open is pending. A run that fails is made again by -trials 1 and
// its seed.
func TestInjected(t *testing.T) {
	for n := range *trials {
		seed := *trialSeed + uint64(n)
		t.Run("seed "+strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			tr := newTrial(t, seed)
			for n := 3 + tr.random.IntN(4); n > 0 && !tr.spoilt; n-- {
				tr.inject()
			}
			tr.judge()
		})
	}
}

// injections are the faults, by what they are done to.
var injections = []struct {
	name string
	do   func(*trial, payment)
}{
	{"nothing", (*trial).undisturbed},
	{"gateway dies at an edge", (*trial).dieAtAnEdge},
	{"gateway dies at an edge", (*trial).dieAtAnEdge},
	{"gateway is killed at any time", (*trial).killGateway},
	{"gateway stops for longer than its lease", (*trial).stopGateway},
	{"server misbehaves", (*trial).serverFails},
	{"server misbehaves", (*trial).serverFails},
	{"answers are mangled", (*trial).mangle},
	{"interceptor server dies at an edge", (*trial).serveDies},
	{"agent leaves", (*trial).agentLeaves},
	{"disk is full", (*trial).fullDisk},
	{"log is read-only", (*trial).readOnly},
	{"log is corrupt at its end", (*trial).corrupt},
	{"clock steps", (*trial).stepClock},
	{"people approve", (*trial).peopleApprove},
}

func (tr *trial) inject() {
	p, injection := tr.draw(), injections[tr.random.IntN(len(injections))]
	tr.note("%s: %s of a%d", injection.name, p.tool, p.n)
	injection.do(tr, p)
	tr.w.faults(nil)
}

func (tr *trial) undisturbed(p payment) { tr.callAgain(p) }

func (tr *trial) peopleApprove(p payment) {
	tr.ready() // there is a log now
	tr.approveAll()
	tr.undisturbed(p)
}

func (tr *trial) dieAtAnEdge(p payment) {
	all := []string{"before-begin", "after-begin", "after-dispatch", "after-answer", "after-settle"}
	edge := all[tr.random.IntN(len(all))]
	tr.note("  %s", edge)
	tr.start("UNDOLOG_FAULT=" + edge)
	tr.send(tr.agent, p)(patience)
	tr.end()
}

// serveDies makes a call through somebody else's engine, whose interceptor server dies. Its claims live for as long
// as the policy says.
func (tr *trial) serveDies(p payment) {
	if tr.w.policy == "" {
		tr.undisturbed(p)
		return
	}
	all := []string{"", "before-begin", "after-begin", "after-answer", "after-settle"}
	edge := all[tr.random.IntN(len(all))]
	tr.note("  %s", edge)
	if tr.tools == nil {
		tools := exec.Command(tr.w.server[0], append(tr.w.server[1:len(tr.w.server):len(tr.w.server)], "--http", "127.0.0.1:0")...)
		tr.tools = &mcptest.HTTP{URL: mcptest.StartHTTP(tr.t, tools), Version: "2026-07-28"}
	}
	cmd := tr.w.command("serve", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--policy", tr.w.policy)
	cmd.Env = append(os.Environ(), "UNDOLOG_FAULT="+edge)
	serve := tr.w.startReplica(cmd)
	e := &engine{principal: "agent:a", server: "payments", tools: tr.tools, hosts: []*mcptest.HTTP{{URL: serve.url, Version: "2026-07-28"}}}
	tr.calls++
	ctx, cancel := context.WithTimeout(tr.t.Context(), patience)
	defer cancel()
	if m, err := e.call(ctx, fmt.Sprint(tr.calls), p.tool, p.arguments(), p.meta()); err == nil {
		tr.note("  %.160s", m.Raw)
		tr.told = append(tr.told, tale{p, m})
	}
	_ = serve.cmd.Process.Kill() // an error says that it has ended
	<-serve.exited
}

// stepClock makes a call through a gateway whose clock is stepped meanwhile, and once more through one whose clock
// is right: to either the other's leases seem to be over, or to hold for long.
func (tr *trial) stepClock(p payment) {
	steps := []string{"-1h", "-3s", "3s"}
	step := steps[tr.random.IntN(len(steps))]
	tr.note("  %s", step)
	clock := filepath.Join(tr.w.dir, "clock")
	writeFile(tr.t, clock, "0s")
	tr.slow(p)
	tr.start("UNDOLOG_FAULT_CLOCK=" + clock)
	await := tr.send(tr.agent, p)
	tr.pause(tr.upTo(60 * time.Millisecond))
	writeFile(tr.t, clock, step)
	await(patience)
	other := tr.open(tr.w.command(tr.gatewayArgs()...))
	if other != nil {
		tr.send(other, p)(patience)
		other.Kill()
	}
	tr.send(tr.agent, p)(patience)
	tr.end()
}

// slow makes the tool take its time, before its effect and after it.
func (tr *trial) slow(p payment) {
	tr.w.faults(faults.Set{p.tool: {DelayBeforeMs: tr.random.IntN(30), DelayAfterMs: tr.random.IntN(30), Times: 1}})
}

func (tr *trial) killGateway(p payment) {
	tr.slow(p)
	tr.ready()
	tr.send(tr.agent, p)
	tr.pause(tr.upTo(80 * time.Millisecond))
	tr.end()
}

func (tr *trial) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-tr.t.Context().Done():
	}
}

// stopGateway stops a gateway in a call for longer than its claim lives. Another one makes the call meanwhile, and
// then the first goes on. It may have been stopped in a write, for whose end the other waits.
func (tr *trial) stopGateway(p payment) {
	tr.slow(p)
	tr.ready()
	other := tr.open(tr.w.command(tr.gatewayArgs()...))
	if tr.agent == nil || other == nil {
		tr.t.Fatal("a sound gateway does not start")
	}
	await := tr.send(tr.agent, p)
	tr.pause(tr.upTo(60 * time.Millisecond))
	tr.agent.Signal(syscall.SIGSTOP)
	tr.pause(lapse + 200*time.Millisecond)
	awaitOther := tr.send(other, p)
	awaitOther(lapse)
	tr.agent.Signal(syscall.SIGCONT)
	await(patience)
	other.Kill()
}

func (tr *trial) serverFails(p payment) {
	acts := []faults.Act{faults.None, faults.ToolError, faults.RPCError, faults.Drop, faults.Exit, faults.Kill}
	rule := faults.Rule{Times: 1, DelayBeforeMs: tr.random.IntN(30), Before: acts[tr.random.IntN(len(acts))]}
	if rule.Before == faults.None {
		rule.After = acts[tr.random.IntN(len(acts))]
	}
	tr.note("  before %q after %q", rule.Before, rule.After)
	tr.w.faults(faults.Set{p.tool: rule})
	tr.ready()
	wait := patience
	if rule.Before == faults.Drop || rule.After == faults.Drop {
		wait = lapse
	}
	if _, answered := tr.send(tr.agent, p)(wait); !answered {
		tr.end()
	}
}

// mangle puts a program between gateway and server that spoils the answer of a call.
func (tr *trial) mangle(p payment) {
	how := manglings[tr.random.IntN(len(manglings))]
	tr.note("  %s", how)
	self, err := os.Executable()
	if err != nil {
		tr.t.Fatal(err)
	}
	args := tr.gatewayArgs()
	args = append(args[:len(args)-len(tr.w.server)], append([]string{self}, tr.w.server...)...)
	cmd := tr.w.command(args...)
	cmd.Env = append(os.Environ(), manglerEnv+"="+how)
	tr.startCommand(cmd)
	tr.send(tr.agent, p)(time.Second)
	tr.end()
}

func (tr *trial) agentLeaves(p payment) {
	tr.slow(p)
	tr.ready()
	if tr.agent == nil {
		return
	}
	agent := tr.agent
	tr.agent = nil
	tr.send(agent, p)
	tr.pause(tr.upTo(40 * time.Millisecond))
	agent.CloseStdin()
	select {
	case <-agent.Exited():
	case <-time.After(patience):
		tr.t.Errorf("a gateway whose agent has left does not end")
	}
}

// fullDisk makes calls through a gateway whose files cannot grow beyond a size, until they cannot.
func (tr *trial) fullDisk(p payment) {
	limit := 40 + tr.random.IntN(600) // half kibibytes
	tr.note("  no file grows beyond %d half KiB", limit)
	args := append([]string{"-c", fmt.Sprintf(`ulimit -f %d; exec "$0" "$@"`, limit), tr.w.undolog, "--db", tr.w.db}, tr.gatewayArgs()...)
	tr.startCommand(exec.Command("sh", args...))
	for range 3 {
		tr.send(tr.agent, p)(2 * time.Second)
		p = tr.draw()
	}
	tr.end()
}

// readOnly makes a call while the log may not be written to.
func (tr *trial) readOnly(p payment) {
	tr.end()
	tr.ready()
	tr.end() // there is a log now
	cmd := tr.w.command(tr.gatewayArgs()...)
	if os.Getuid() == 0 { // who may do anything gives that up
		args := append([]string{"--bounding-set=-dac_override,-dac_read_search", "--", tr.w.undolog}, cmd.Args[1:]...)
		cmd = exec.Command("setpriv", args...)
	}
	restore := tr.chmod(0o400)
	tr.startCommand(cmd)
	before := len(tr.w.entries(p.tool))
	tr.send(tr.agent, p)(2 * time.Second)
	if after := len(tr.w.entries(p.tool)); after != before {
		tr.t.Errorf("%s was made although the log is read-only", p.tool)
	}
	tr.end()
	restore()
}

// chmod changes the mode of the log's files, and returns how to change it back.
func (tr *trial) chmod(mode os.FileMode) (restore func()) {
	var changed []string
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if os.Chmod(tr.w.db+suffix, mode) == nil {
			changed = append(changed, tr.w.db+suffix)
		}
	}
	return func() {
		for _, path := range changed {
			if err := os.Chmod(path, 0o600); err != nil && !os.IsNotExist(err) {
				tr.t.Error(err)
			}
		}
	}
}

// corrupt spoils the last page of the log. What had happened does not happen again, and what is done on the spoilt
// log is done on no other: the log is as it was afterwards only if the tool did nothing.
func (tr *trial) corrupt(p payment) {
	tr.end()
	sound := tr.readLog()
	if len(sound[""]) < 4096 {
		return
	}
	charges := fmt.Sprint(tr.charges())
	before := len(tr.w.entries(p.tool))
	spoilt := bytes.Clone(sound[""])
	for i := len(spoilt) - 4096; i < len(spoilt); i++ {
		spoilt[i] = byte(tr.random.Uint32())
	}
	if err := os.WriteFile(tr.w.db, spoilt, 0o600); err != nil {
		tr.t.Fatal(err)
	}
	tr.start()
	tr.send(tr.agent, p)(2 * time.Second)
	tr.end()
	if p.tool == "charge" && len(tr.charges()[fmt.Sprintf("a%d", p.n)]) > 1 {
		tr.t.Errorf("%+v happened again on a corrupt log: was %s, is %v", p, charges, tr.charges())
	}
	if tr.spoilt = len(tr.w.entries(p.tool)) != before; !tr.spoilt {
		tr.writeLog(sound)
	}
}

func (tr *trial) readLog() map[string][]byte {
	files := map[string][]byte{}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if data, err := os.ReadFile(tr.w.db + suffix); err == nil {
			files[suffix] = data
		}
	}
	return files
}

func (tr *trial) writeLog(files map[string][]byte) {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		data, was := files[suffix]
		err := os.Remove(tr.w.db + suffix)
		if was {
			err = os.WriteFile(tr.w.db+suffix, data, 0o600)
		}
		if err != nil && !os.IsNotExist(err) {
			tr.t.Fatal(err)
		}
	}
}
