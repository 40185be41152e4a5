package effect_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
)

var update = flag.Bool("update", false, "write golden files and generated docs")

func TestStateAt(t *testing.T) {
	past, future := now.Add(-time.Second), now.Add(time.Second)
	for _, tt := range []struct {
		name string
		r    effect.Record
		want effect.State
	}{
		{"a claim whose owner lives is claimed", effect.Record{State: effect.StateClaimed, OwnerUntil: future}, effect.StateClaimed},
		{"a claim whose owner's heart stopped is in doubt", effect.Record{State: effect.StateClaimed, OwnerUntil: past}, effect.StateInDoubt},
		{"a heartbeat is over at its end", effect.Record{State: effect.StateClaimed, OwnerUntil: now}, effect.StateInDoubt},
		{"a claim whose owner ended is in doubt", effect.Record{State: effect.StateClaimed}, effect.StateInDoubt},
		{"a lease holds without a heartbeat", effect.Record{State: effect.StateClaimed, LeaseUntil: future}, effect.StateClaimed},
		{"a lease that is over is in doubt although its owner lives", effect.Record{State: effect.StateClaimed, LeaseUntil: past, OwnerUntil: future}, effect.StateInDoubt},
		{"a time-out that passed is in doubt although its owner lives", effect.Record{State: effect.StateClaimed, OwnerUntil: future, TimeoutAt: now}, effect.StateInDoubt},
		{"a time-out to come changes nothing", effect.Record{State: effect.StateClaimed, OwnerUntil: future, TimeoutAt: future}, effect.StateClaimed},
		{"a waiting attempt has no owner", effect.Record{State: effect.StateWaiting, OwnerUntil: past, TimeoutAt: past}, effect.StateWaiting},
		{"what is settled stays settled", effect.Record{State: effect.StateCommitted, OwnerUntil: past, TimeoutAt: past}, effect.StateCommitted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.r.StateAt(now); got != tt.want {
				t.Errorf("StateAt = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestCanMove(t *testing.T) {
	for _, tt := range []struct {
		name     string
		from, to effect.State
		want     bool
	}{
		{"a claim is settled", effect.StateClaimed, effect.StateCommitted, true},
		{"a dead claim is claimed again", effect.StateClaimed, effect.StateClaimed, true},
		{"a late answer settles a doubt", effect.StateInDoubt, effect.StateCommitted, true},
		{"a doubt is never released: something was sent", effect.StateInDoubt, effect.StateReleased, false},
		{"what is committed is never claimed", effect.StateCommitted, effect.StateClaimed, false},
		{"what is committed never fails", effect.StateCommitted, effect.StateFailed, false},
		{"what failed is never committed without a claim", effect.StateFailed, effect.StateCommitted, false},
		{"what was denied is never claimed", effect.StateDenied, effect.StateClaimed, false},
		{"what was undone is never undone again", effect.StateCompensated, effect.StateCompensating, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := effect.CanMove(tt.from, tt.to); got != tt.want {
				t.Errorf("CanMove(%s, %s) = %t, want %t", tt.from, tt.to, got, tt.want)
			}
		})
	}
}

// Undo is not made yet, so that its states are none that could be asked for.
func TestReachable(t *testing.T) {
	reached := effect.Reachable()
	for _, m := range effect.Moves() {
		undo := m.From == effect.StateCompensating || m.To == effect.StateCompensating
		if !undo && (!slices.Contains(reached, m.From) || !slices.Contains(reached, m.To)) || undo && slices.Contains(reached, effect.StateCompensating) {
			t.Errorf("%s to %s: reachable are %v", m.From, m.To, reached)
		}
	}
	if len(reached) != 10 {
		t.Errorf("%d states can be reached, want 10: %v", len(reached), reached)
	}
}

func TestMoves_NameEachStepOnceWithItsReason(t *testing.T) {
	type step struct{ from, to effect.State }
	seen := map[step]bool{}
	for _, m := range effect.Moves() {
		if seen[step{m.From, m.To}] {
			t.Errorf("%s to %s is in the table twice", m.From, m.To)
		}
		seen[step{m.From, m.To}] = true
		if m.Why == "" {
			t.Errorf("%s to %s has no reason", m.From, m.To)
		}
	}
}

func TestMoves_OpenStatesCanBeLeftAndRetryableOnesClaimed(t *testing.T) {
	for _, m := range effect.Moves() {
		if m.From.IsOpen() && m.From.IsRetryable() {
			t.Errorf("%s is open and retryable", m.From)
		}
		if m.From.IsRetryable() && m.To != effect.StateClaimed && m.To != effect.StateAwaitingApproval {
			t.Errorf("retryable %s may go to %s", m.From, m.To)
		}
	}
	for _, s := range []effect.State{effect.StateReleased, effect.StateFailed, effect.StateExpired, effect.StateVoid} {
		if !s.IsRetryable() || !effect.CanMove(s, effect.StateClaimed) || !effect.CanMove(s, effect.StateAwaitingApproval) {
			t.Errorf("%s cannot be claimed, or asked about, again", s)
		}
	}
}

const diagramFile = "../docs/state_machine.md"

func TestMoves_AreDrawnInTheDocs(t *testing.T) {
	want := diagram()
	if *update {
		if err := os.WriteFile(diagramFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(diagramFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/state_machine.md is not current, run go generate ./effect (-want +got)\n%s", diff)
	}
}

// diagram draws the transition table in Markdown.
func diagram() string {
	var b strings.Builder
	b.WriteString("# The states of an effect\n\n")
	b.WriteString("Generated from the transition table in `effect/move.go` by `go generate ./effect`. The store refuses every\n")
	b.WriteString("other move.\n\n```mermaid\nstateDiagram-v2\n    [*] --> awaiting_approval\n    [*] --> claimed\n")
	for _, m := range effect.Moves() {
		b.WriteString("    " + string(m.From) + " --> " + string(m.To) + "\n")
	}
	b.WriteString("```\n\n| from | to | why |\n|---|---|---|\n")
	for _, m := range effect.Moves() {
		b.WriteString("| " + string(m.From) + " | " + string(m.To) + " | " + m.Why + " |\n")
	}
	b.WriteString("\nA claim is *read* as in doubt, with nothing written, when its owner's heart has stopped, its fixed lease (a claim\n")
	b.WriteString("made for a remote engine) is over, or its time-out has passed. An answer of the same attempt that still comes\n")
	b.WriteString("settles it. A request for approval is read as expired when the time to decide is over, and as void when it was\n")
	b.WriteString("approved and the time to use it is over.\n")
	return b.String()
}
