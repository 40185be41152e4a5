package effect

import (
	"slices"
	"time"
)

// Move is one legal step from a state to another, with who takes it.
type Move struct {
	From, To State
	Why      string
}

// moves is the transition table: the store refuses every other move, and docs/state_machine.md is drawn
// from it.
var moves = []Move{
	{StateAwaitingApproval, StateAwaitingApproval, "a vote, an edit, more time, or the next request"},
	{StateAwaitingApproval, StateClaimed, "approved, and the call came to use it"},
	{StateAwaitingApproval, StateDenied, "a person said no"},
	{StateAwaitingApproval, StateExpired, "nobody decided in time"},
	{StateAwaitingApproval, StateVoid, "approved, and not used in time or no longer allowed"},

	{StateClaimed, StateCommitted, "answered: the answer is the record"},
	{StateClaimed, StateFailed, "answered: nothing was applied"},
	{StateClaimed, StateReleased, "proof that nothing was sent"},
	{StateClaimed, StateWaiting, "the target wants another round or gave a task handle"},
	{StateClaimed, StateInDoubt, "sent, and no answer"},
	{StateClaimed, StateClaimed, "the owner is gone and the tool is idempotent: the next attempt"},

	{StateWaiting, StateClaimed, "the call came back with the continuation"},
	{StateWaiting, StateCommitted, "the task ended"},
	{StateWaiting, StateFailed, "the task failed: nothing was applied"},
	{StateWaiting, StateInDoubt, "the task was lost"},
	{StateWaiting, StateReleased, "proof that nothing was applied"},

	{StateInDoubt, StateCommitted, "late answer of the same attempt, a probe, or a person"},
	{StateInDoubt, StateFailed, "late answer of the same attempt, a probe, or a person"},
	{StateInDoubt, StateClaimed, "the tool is idempotent: the next attempt"},
	{StateClaimed, StateAwaitingApproval, "the owner is gone and the tool is idempotent: the next attempt needs approval"},
	{StateInDoubt, StateAwaitingApproval, "the tool is idempotent: the next attempt needs approval"},

	{StateReleased, StateClaimed, "the same call again: the next attempt"},
	{StateFailed, StateClaimed, "the same call again: the next attempt"},
	{StateExpired, StateClaimed, "the same call again: the next attempt"},
	{StateVoid, StateClaimed, "the same call again: the next attempt"},
	{StateReleased, StateAwaitingApproval, "the same call again needs approval"},
	{StateFailed, StateAwaitingApproval, "the same call again needs approval"},
	{StateExpired, StateAwaitingApproval, "the same call again needs approval"},
	{StateVoid, StateAwaitingApproval, "the same call again needs approval"},
	{StateDenied, StateAwaitingApproval, "a person reopened it"},

	{StateCommitted, StateCompensating, "undo began"},
	{StateCompensating, StateCompensated, "undone"},
	{StateCompensating, StateCompensationFailed, "the compensation was answered with a failure"},
	{StateCompensationFailed, StateCompensating, "undo was tried again"},
}

// Moves returns a copy of the transition table.
func Moves() []Move { return slices.Clone(moves) }

// Reachable lists the states in which an effect can be: those to which moves lead from its first ones, claimed and
// awaiting approval, but for the moves of undo, which nothing makes yet.
func Reachable() []State {
	reached := []State{StateAwaitingApproval, StateClaimed}
	for i := 0; i < len(reached); i++ {
		for _, m := range moves {
			if m.From == reached[i] && m.To != StateCompensating && !slices.Contains(reached, m.To) {
				reached = append(reached, m.To)
			}
		}
	}
	return reached
}

// CanMove reports whether an effect may go from one state to another. From is the state as recorded: a
// claim that reads as in doubt is still claimed, and what is legal from in doubt is legal from claimed.
func CanMove(from, to State) bool {
	return slices.ContainsFunc(moves, func(m Move) bool { return m.From == from && m.To == to })
}

// IsOpen reports whether the outcome is not known yet. An open effect matches its call for ever.
func (s State) IsOpen() bool {
	switch s {
	case StateAwaitingApproval, StateClaimed, StateWaiting, StateInDoubt:
		return true
	}
	return false
}

// IsRetryable reports whether nothing was applied, so that the same call may claim the next attempt.
func (s State) IsRetryable() bool {
	switch s {
	case StateReleased, StateFailed, StateExpired, StateVoid:
		return true
	}
	return false
}

// StateAt derives the state at a time: a claim whose fixed lease is over, or that has none and whose
// owner's heart has stopped, or whose time-out has passed, is in doubt; a request for approval is expired when nobody decided in
// time, and void when it was approved and not used in time. Nothing is written; an answer of
// the same attempt that still comes settles the claim.
func (r *Record) StateAt(now time.Time) State {
	switch r.State {
	case StateClaimed:
	case StateAwaitingApproval:
		return r.Approval.stateAt(now)
	default:
		return r.State
	}
	lease := r.LeaseUntil
	if lease.IsZero() {
		lease = r.OwnerUntil // zero when the owner has ended: over
	}
	if !now.Before(lease) || !r.TimeoutAt.IsZero() && !now.Before(r.TimeoutAt) {
		return StateInDoubt
	}
	return StateClaimed
}
