package effect

// OutcomeKind says how one dispatch ended, as far as can be known.
type OutcomeKind string

const (
	OutcomeAnswered OutcomeKind = "answered" // Answer holds the target's result or error
	OutcomeWaiting  OutcomeKind = "waiting"  // the target wants another round (input_required) or gave a task handle
	OutcomeUnsent   OutcomeKind = "unsent"   // proof that not one byte was sent
	OutcomeLost     OutcomeKind = "lost"     // sent, and no answer: time-out, disconnect, crash of the target
)

// Outcome is the end, or the interruption, of one dispatch.
type Outcome struct {
	Kind         OutcomeKind
	Answer       Answer
	Continuation string // for OutcomeWaiting: the requestState, or the task id, by which the attempt goes on
	Reason       string // for OutcomeUnsent and OutcomeLost
}
