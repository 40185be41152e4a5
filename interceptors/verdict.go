package interceptors

import "slices"

// Allow is the verdict that passes a payload.
func Allow() *Verdict { return &Verdict{Valid: true} }

// Deny is the verdict that stops a payload; the message is for the log and for engines that show it.
func Deny(message string) *Verdict {
	return &Verdict{Severity: SeverityError, Messages: []Message{{Message: message, Severity: SeverityError}}}
}

// rank orders severities; what is not known counts as an error, as engines take it.
func (s Severity) rank() int {
	switch s {
	case SeverityInfo:
		return 0
	case SeverityWarn:
		return 1
	}
	return 2
}

// body makes the verdict say one thing to every engine, because engines look at different members: a
// denial has valid, severity and an error message agree; what does not block has no error message.
func (v *Verdict) body() verdictBody {
	b := verdictBody{Valid: v.Valid, Messages: v.Messages, Suggestions: v.Suggestions}
	most, usual := SeverityWarn, SeverityInfo
	if !v.Valid {
		b.Severity = v.Severity
		if b.Severity.rank() == SeverityError.rank() {
			b.Severity = SeverityError
		}
		most, usual = b.Severity, b.Severity
	}
	b.Messages = capMessages(v.Messages, most, usual)
	if b.Severity == SeverityError && !slices.ContainsFunc(b.Messages, isError) {
		b.Messages = append(slices.Clip(b.Messages), Message{Message: "denied", Severity: SeverityError})
	}
	return b
}

func isError(m Message) bool { return m.Severity == SeverityError }

// capMessages copies the messages, none of them graver than most. One without a severity has the usual.
func capMessages(ms []Message, most, usual Severity) []Message {
	if len(ms) == 0 {
		return nil
	}
	capped := slices.Clone(ms)
	for i := range capped {
		m := &capped[i]
		switch {
		case m.Severity == "":
			m.Severity = usual
		case m.Severity.rank() >= most.rank():
			m.Severity = most
		}
	}
	return capped
}
