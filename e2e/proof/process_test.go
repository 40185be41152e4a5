package proof_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// hearts is how long a claim outlives its process. It is longer than any history takes by the clock on the wall,
// so that hearts beat when a history says so and never by themselves.
const hearts = time.Hour

// process is a log of its own on the database that all share, as another process would have it.
type process struct {
	*store.Log
	driver *mortal
}

func start(open func() (store.Driver, error), now func() time.Time) (*process, error) {
	driver, err := open()
	if err != nil {
		return nil, err
	}
	m := &mortal{Driver: driver}
	log, err := store.Open(m, &store.Options{Now: now, TTL: hearts, FlushEvery: time.Millisecond})
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	return &process{Log: log, driver: m}, nil
}

// kill ends the process as SIGKILL does: nothing more of it reaches the database, its end included.
func (p *process) kill() {
	p.driver.dead.Store(true)
	_ = p.Close() // its driver says that it is dead
}

// mortal is a driver whose process can die: from then on nothing reaches the database.
type mortal struct {
	store.Driver
	dead atomic.Bool
	// doomed dies in its next Begin: after the database has it, and before its caller is told.
	doomed atomic.Bool
	last   *store.Begun // of a Begin that nobody was told of
}

var errDead = errors.New("process killed")

func (m *mortal) Begin(ctx context.Context, p *store.Begin) (*store.Begun, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	begun, err := m.Driver.Begin(ctx, p)
	if m.doomed.Load() {
		m.last = begun
		m.dead.Store(true)
		return nil, errors.Join(err, errDead)
	}
	return begun, err
}

func (m *mortal) Append(ctx context.Context, tenant string, t *effect.Transition) (*effect.Record, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	return m.Driver.Append(ctx, tenant, t)
}

func (m *mortal) Write(ctx context.Context, n *store.Notes) error {
	if m.dead.Load() {
		return errDead
	}
	return m.Driver.Write(ctx, n)
}

func (m *mortal) Beat(ctx context.Context, owner string, ttl time.Duration) error {
	if m.dead.Load() {
		return errDead
	}
	return m.Driver.Beat(ctx, owner, ttl)
}

func (m *mortal) End(ctx context.Context, owner string) error {
	if m.dead.Load() {
		return errDead
	}
	return m.Driver.End(ctx, owner)
}
