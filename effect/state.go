package effect

// State says where an effect stands. The moves between states are the table in move.go and nothing else.
type State string

const (
	// StateAwaitingApproval: recorded, a person must decide. Left by a decision or its clock.
	StateAwaitingApproval State = "awaiting_approval"
	// StateClaimed: one caller holds the right to dispatch, and may have. Left when it settles; read as
	// StateInDoubt when its owner is gone.
	StateClaimed State = "claimed"
	// StateWaiting: the target wants another round or gave a task handle; nobody holds a lease.
	StateWaiting State = "waiting"
	// StateCommitted: answered, and the answer is the record.
	StateCommitted State = "committed"
	// StateFailed: answered, and the answer says that nothing was applied.
	StateFailed State = "failed"
	// StateReleased: proof that nothing was sent.
	StateReleased State = "released"
	// StateInDoubt: sent, or perhaps sent, and no answer. Left by a late answer of the same attempt, a
	// probe, a person, or a new attempt of an idempotent tool.
	StateInDoubt State = "in_doubt"
	// StateDenied: a person said no. Only a person reopens it.
	StateDenied State = "denied"
	// StateExpired: nobody decided in time.
	StateExpired State = "expired"
	// StateVoid: approved, and not used in time or no longer allowed.
	StateVoid State = "void"
	// StateCompensating: its compensation runs.
	StateCompensating State = "compensating"
	// StateCompensated: undone.
	StateCompensated State = "compensated"
	// StateCompensationFailed: its compensation was answered with a failure.
	StateCompensationFailed State = "compensation_failed"
)
