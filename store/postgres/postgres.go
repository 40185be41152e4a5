package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/singleflight"

	"github.com/undolog/undolog/store"
)

// Options are what may be set about a Driver; nil stands for all defaults.
type Options struct {
	// Logger is told of a server without durability and of a pooler found on the way. Defaults to silence.
	Logger *slog.Logger
	// Now is the clock of everything recorded and decided. Defaults to the database's.
	Now func() time.Time
	// Patience is how long a write is tried again while the database is away, before
	// store.ErrUnreachable. Defaults to 30 s.
	Patience time.Duration
	// NoMigrate leaves an older schema alone: Open fails and says what to run. Defaults to migrating.
	NoMigrate bool
}

// Driver is the log in one PostgreSQL database. It is safe for concurrent use, and any number of them may
// share the database.
type Driver struct {
	logger   *slog.Logger
	patience time.Duration
	clock    clock
	mode     mode

	pool    *pgxpool.Pool
	writes  writes
	reads   reads
	known   known
	beating singleflight.Group
	turning places
	orphans orphans
	closed  atomic.Bool

	listener listener
	notifier notifier
}

var (
	_ store.Driver  = (*Driver)(nil)
	_ store.Clocked = (*Driver)(nil)
	_ store.Waking  = (*Driver)(nil)
)

// Open opens the log in the database that the URL names (libpq's parameters and pgx's: pool_max_conns,
// default_query_exec_mode). A database without a schema, or with an older one, is migrated when the role
// may; a newer one is store.ErrSchema only if it says that this program cannot use it. A role that
// row-level security does not bind is refused.
func Open(ctx context.Context, url string, opts *Options) (*Driver, error) {
	d := newDriver(opts)
	if err := d.open(ctx, url, opts != nil && opts.NoMigrate); err != nil {
		return nil, fmt.Errorf("open log in PostgreSQL: %w", explain(err))
	}
	return d, nil
}

func newDriver(opts *Options) *Driver {
	if opts == nil {
		opts = &Options{}
	}
	d := &Driver{logger: opts.Logger, patience: opts.Patience, clock: clock{fixed: opts.Now}, known: newKnown()}
	if d.logger == nil {
		d.logger = slog.New(slog.DiscardHandler)
	}
	if d.patience <= 0 {
		d.patience = 30 * time.Second
	}
	d.writes.init(d)
	d.orphans.init(d)
	d.reads.init(d)
	d.listener.init(d)
	d.notifier.init(d)
	return d
}

func (d *Driver) open(ctx context.Context, url string, noMigrate bool) error {
	config, err := d.config(url)
	if err != nil {
		return err
	}
	if d.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	d.turning = newPlaces(config.MaxConns)
	if err := d.prepare(ctx, url, noMigrate); err != nil {
		d.pool.Close()
		return err
	}
	return nil
}

// prepare finds out whether the database is one for the log, and makes it so where it may.
func (d *Driver) prepare(ctx context.Context, url string, noMigrate bool) error {
	if err := d.checkServer(ctx); err != nil {
		return err
	}
	if err := d.checkSchema(ctx, url, noMigrate); err != nil {
		return err
	}
	if err := d.checkRights(ctx); err != nil {
		return err
	}
	if err := d.checkPolicies(ctx); err != nil {
		return err
	}
	if err := d.checkOrder(ctx); err != nil {
		return err
	}
	return d.readClock(ctx)
}

// Ping reports whether the log can be read now.
func (d *Driver) Ping(ctx context.Context) error {
	if d.closed.Load() {
		return store.ErrClosed
	}
	if _, err := d.pool.Exec(ctx, `SELECT FROM undolog.compatibility`); err != nil {
		return fmt.Errorf("ping log: %w", err)
	}
	return nil
}

// Stats are counts of the pool of connections and of the groups of writes, from when the driver was opened.
type Stats struct {
	MaxConns, TotalConns, IdleConns, UsedConns int32
	Acquired                                   int64         // connections taken from the pool
	AcquireWait                                time.Duration // in all, waiting for one
	Groups, Grouped                            int64         // transactions of grouped writes, and writes in them
	ReadGroups, GroupedReads                   int64         // groups of calls that were looked up, and calls in them
	Told, Heard                                int64         // moves that waiters were told of, and notifications of such that came
}

// Stats returns the counts of now.
func (d *Driver) Stats() Stats {
	s := d.pool.Stat()
	return Stats{
		MaxConns: s.MaxConns(), TotalConns: s.TotalConns(), IdleConns: s.IdleConns(), UsedConns: s.AcquiredConns(),
		Acquired: s.AcquireCount(), AcquireWait: s.AcquireDuration(),
		Groups: d.writes.sent.Load(), Grouped: d.writes.rows.Load(),
		ReadGroups: d.reads.sent.Load(), GroupedReads: d.reads.asked.Load(),
		Told: d.notifier.told.Load(), Heard: d.listener.heard.Load(),
	}
}

// LogTime implements store.Clocked.
func (d *Driver) LogTime(local time.Time) time.Time { return d.clock.at(local) }

// Close waits for the writes already begun and closes the connections. It does not end any owner's
// heartbeat.
func (d *Driver) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.orphans.close()
	d.listener.close()
	d.writes.wait()
	d.reads.wait()
	d.notifier.close()
	d.pool.Close()
	return nil
}
