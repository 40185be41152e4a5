package store

import "time"

// Clocked is a Driver whose log has another clock than this process, such as a database's own.
type Clocked interface {
	// LogTime returns when, by the log's clock, this process's clock showed a time. It MUST return the same
	// for the same time.
	LogTime(local time.Time) time.Time
}

// ownClock is that of a log whose clock is this process's.
type ownClock struct{}

func (ownClock) LogTime(local time.Time) time.Time { return local }

func (l *Log) setClock() {
	l.clock = ownClock{}
	if clocked, ok := l.driver.(Clocked); ok && l.opts.Now == nil {
		l.clock = clocked
	}
	if l.opts.Now == nil {
		l.opts.Now = func() time.Time { return l.clock.LogTime(time.Now()) }
	}
}

// Now is the log's time: what effect.Record.StateAt is to be asked with.
func (l *Log) Now() time.Time { return l.opts.Now() }

// logTime is the log's time of a moment that the caller has seen; now when it has seen none.
func (l *Log) logTime(local time.Time) time.Time {
	if local.IsZero() {
		return l.opts.Now()
	}
	return l.clock.LogTime(local)
}
