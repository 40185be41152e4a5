package sqlite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/drivertest"
	"github.com/undolog/undolog/store/sqlite"
)

// asking is an irreversible tool's contract under a policy.
var asking = &effect.Contract{
	Tier: effect.TierIrreversible, Window: 10 * time.Minute, Repeat: effect.RepeatReplay, RepeatError: effect.RepeatReplay,
	Lookalike: effect.RepeatRun, OnToolError: effect.StateCommitted, Timeout: 10 * time.Minute, Lease: 5 * time.Minute,
	Approve: true, Asking: effect.Asking{Quorum: 1, DecideFor: 24 * time.Hour, UseFor: time.Hour},
}

func openForChild(path string) (*store.Log, error) {
	d, err := sqlite.Open(context.Background(), path, nil)
	if err != nil {
		return nil, err
	}
	return store.Open(d, nil)
}

func beginAsking(l *store.Log, arguments string) (*store.Begun, error) {
	call := &effect.Call{Principal: "agent:a", Server: "payments", Tool: "charge", Arguments: []byte(arguments)}
	id, err := asking.Identify(call)
	if err != nil {
		return nil, err
	}
	return l.Begin(context.Background(), &store.BeginParams{Call: call, Identity: id, Contract: asking})
}

// Requests and decisions of which somebody was told are there after their process was killed, and each
// approval is good for one run.
func TestProcesses_KilledWhileDeciding(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	said := map[string]string{} // what was said last of each call
	for round := range max(3, drivertest.Scale(10)) {
		c := startChild(t, "approver", path, fmt.Sprint(round))
		for range 1 + rand.IntN(40) + round%2*10 { // of ten lines of four callers three say that one is approved
			hear(said, string(c.line(t)))
		}
		c.kill(t)
		for rest := bufio.NewScanner(c.out); rest.Scan(); { // said before it died
			hear(said, rest.Text())
		}
		assertIntact(t, path)
	}
	l := openLog(t, path)
	approved := 0
	for arguments, state := range said {
		begun, err := beginAsking(l, arguments)
		if err != nil {
			t.Fatal(err)
		}
		switch action := begun.Verdict.Action; {
		case state == "approved" && action == effect.ActApproved:
			approved++
		case state == "asked" && (action == effect.ActAsk || action == effect.ActApproved): // decided, and killed before it said so
		default:
			t.Errorf("%s was %s: %s", arguments, state, action)
		}
		if begun.Claim == nil {
			continue
		}
		if second, err := beginAsking(l, arguments); err != nil || second.Verdict.Action != effect.ActJoin {
			t.Errorf("%s a second time: %+v, %v", arguments, second, err)
		}
	}
	if approved < 3 {
		t.Errorf("%d approvals survived", approved)
	}
}

// hear remembers a line of an approver; the last one of a killed one may have been cut off.
func hear(said map[string]string, line string) {
	if state, arguments, ok := strings.Cut(line, " "); ok && strings.HasSuffix(arguments, "}") {
		said[arguments] = state
	}
}

// runApprover asks and approves until it is killed and says what is recorded.
func runApprover(path, round string) error {
	l, err := openForChild(path)
	if err != nil {
		return err
	}
	share(1_000_000, 4, func(i int) {
		if err := askAndApprove(l, fmt.Sprintf(`{"round":%q,"n":%d}`, round, i)); err != nil {
			exitWith(err)
		}
	})
	return nil
}

func askAndApprove(l *store.Log, arguments string) error {
	begun, err := beginAsking(l, arguments)
	if err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString("asked " + arguments + "\n"); err != nil {
		return err
	}
	_, err = l.Decide(context.Background(), &store.DecideParams{
		Tenant: "default", ID: begun.Record.ID, Decision: effect.Decision{Kind: effect.DecideApprove, By: "user:u"},
	})
	if err == nil {
		_, err = os.Stdout.WriteString("approved " + arguments + "\n")
	}
	return err
}

// verdicts is what the decisions of one process came to.
type verdicts struct {
	Won, Told []string // by whom
	Errors    []string
}

// Of 200 decisions from four processes one wins, and the others are told by whom.
func TestProcesses_Decide(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	l := openLog(t, path)
	begun, err := beginAsking(l, `{}`)
	if err != nil {
		t.Fatal(err)
	}
	children := make([]*child, 4)
	for i := range children {
		children[i] = startChild(t, "decider", path, fmt.Sprint(i))
	}
	for _, c := range children {
		c.send(t, begun.Record.ID+"\n")
	}
	var all verdicts
	for _, c := range children {
		var v verdicts
		if err := json.Unmarshal(c.line(t), &v); err != nil {
			t.Fatal(err)
		}
		all.Won, all.Told, all.Errors = append(all.Won, v.Won...), append(all.Told, v.Told...), append(all.Errors, v.Errors...)
		c.wait(t)
	}
	if len(all.Won) != 1 || len(all.Told) != 199 {
		t.Fatalf("%d won, %d were told; %v", len(all.Won), len(all.Told), all.Errors)
	}
	for _, by := range all.Told {
		if by != all.Won[0] {
			t.Errorf("told of %s, and %s won", by, all.Won[0])
		}
	}
}

func runDecider(path, name string) error {
	l, err := openForChild(path)
	if err != nil {
		return err
	}
	id, err := bufio.NewReader(os.Stdin).ReadString('\n') // which is also the start
	if err != nil {
		return err
	}
	results := make(chan error, 50)
	share(50, 8, func(i int) {
		kind := []effect.DecisionKind{effect.DecideApprove, effect.DecideDeny}[i%2]
		by := fmt.Sprintf("user:%s-%d", name, i)
		_, err := l.Decide(context.Background(), &store.DecideParams{
			Tenant: "default", ID: strings.TrimSpace(id), Decision: effect.Decision{Kind: kind, By: by, Reason: "because"},
		})
		if err == nil {
			err = wonError(by)
		}
		results <- err
	})
	var v verdicts
	for range 50 {
		err := <-results
		won, isWon := errors.AsType[wonError](err)
		decided, isDecided := errors.AsType[*effect.DecidedError](err)
		switch {
		case isWon:
			v.Won = append(v.Won, string(won))
		case isDecided:
			v.Told = append(v.Told, decided.By)
		default:
			v.Errors = append(v.Errors, err.Error())
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		return err
	}
	return l.Close()
}

// wonError is the result of the decision that was recorded, among those that were not.
type wonError string

func (w wonError) Error() string { return string(w) + " won" }
