package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Options are what may be set about a Log; nil stands for all defaults.
type Options struct {
	// Logger is told what could not be recorded. Defaults to silence.
	Logger *slog.Logger
	// Now is the clock of deliveries, notes and waits; give the driver the same. Defaults to the log's own.
	Now func() time.Time
	// TTL is how long a claim outlives a process that died without a word. Defaults to 10 s.
	TTL time.Duration
	// FlushEvery is how long a read, an event or a delivery may wait to be written with others. Defaults
	// to 200 ms.
	FlushEvery time.Duration
	// LookEvery is how often who waits for another process looks what has become of it, at first ten times as
	// often. Defaults to 250 ms.
	LookEvery time.Duration
	// QueueSize bounds how many of them wait; more make their callers wait. Defaults to 4096.
	QueueSize int
	// SettleTimeout is how long Settle waits for the outcome to be recorded, whatever the caller's context
	// says, before the log goes on by itself; a write that the driver has begun is awaited. Defaults to 5 s.
	SettleTimeout time.Duration
}

// Log is the effect log. It is safe for concurrent use; Close it to end this process's claims.
type Log struct {
	driver Driver
	logger *slog.Logger
	opts   Options
	owner  string
	clock  Clocked

	notes   notebook
	heart   heart
	settled wakeups

	life   context.Context // ends when Close begins
	end    context.CancelFunc
	tasks  sync.WaitGroup // every goroutine of the log
	mu     sync.Mutex     // guards closed against tasks being added
	closed bool
}

// Open makes a log of a driver, which it closes when it is closed itself.
func Open(driver Driver, opts *Options) (*Log, error) {
	owner, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("name log owner: %w", err)
	}
	l := &Log{driver: driver, owner: owner.String(), opts: resolved(opts)}
	l.setClock()
	l.logger = l.opts.Logger
	l.life, l.end = context.WithCancel(context.Background())
	l.notes.init(l.opts.QueueSize)
	l.tasks.Go(l.writeNotes)
	return l, nil
}

func resolved(opts *Options) Options {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.TTL <= 0 {
		o.TTL = 10 * time.Second
	}
	if o.FlushEvery <= 0 {
		o.FlushEvery = 200 * time.Millisecond
	}
	if o.LookEvery <= 0 {
		o.LookEvery = 250 * time.Millisecond
	}
	if o.QueueSize <= 0 {
		o.QueueSize = 4096
	}
	if o.SettleTimeout <= 0 {
		o.SettleTimeout = 5 * time.Second
	}
	return o
}

// Owner is the id under which this process holds its claims.
func (l *Log) Owner() string { return l.owner }

// Close writes what still waits, ends this process's heartbeat, by which claims that it still holds are
// in doubt at once, waits for all goroutines and closes the driver. Calls after it return ErrClosed.
func (l *Log) Close() error {
	if !l.shut() {
		return nil
	}
	l.end()
	l.tasks.Wait() // the notebook's last flush included
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	var endErr error
	if l.heart.hasBeaten() {
		endErr = l.driver.End(ctx, l.owner)
	}
	if err := errors.Join(endErr, l.driver.Close()); err != nil {
		return fmt.Errorf("close log: %w", err)
	}
	return nil
}

func (l *Log) shut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.closed = true
	return true
}

// spawn runs a goroutine that Close waits for; false when the log is closed.
func (l *Log) spawn(run func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.tasks.Go(run)
	return true
}

// writeTimeout bounds one attempt at a write that nobody waits for.
const writeTimeout = 45 * time.Second

// detached is a context for work that MUST NOT end with its caller.
func detached(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}
