package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/internal/faults"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/postgres"
	"github.com/undolog/undolog/store/sqlite"
)

// backend is a driver that can say whether its log answers.
type backend interface {
	store.Driver
	Ping(ctx context.Context) error
}

var (
	_ backend = (*sqlite.Driver)(nil)
	_ backend = (*postgres.Driver)(nil)
)

// openedLog is an effect log, and what keeps it where.
type openedLog struct {
	*store.Log
	place   place
	backend backend
}

// opening is how a log is opened.
type opening struct {
	ttl      time.Duration // how long this process counts as alive after a heartbeat; 0 takes the store's default
	patience time.Duration // how long a write waits for a log that is away, or held by others; 0 takes the backend's default
	existing bool          // never begin a log, nor change its schema in a database
}

// openLog opens the effect log that --db, $UNDOLOG_DB or the default names.
func openLog(cmd *cobra.Command, logger *slog.Logger, o opening) (*openedLog, error) {
	p, err := logPlace(cmd)
	if err != nil {
		return nil, err
	}
	b, err := openBackend(cmd.Context(), p, logger, o)
	if err != nil {
		return nil, err
	}
	opts := &store.Options{Logger: logger, TTL: o.ttl}
	if !p.inPostgres() { // which has its own clock
		opts.Now = faults.Now
	}
	log, err := store.Open(b, opts)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return &openedLog{Log: log, place: p, backend: b}, nil
}

func openBackend(ctx context.Context, p place, logger *slog.Logger, o opening) (backend, error) {
	if !p.inPostgres() {
		if o.existing {
			if err := p.isThere(); err != nil {
				return nil, err
			}
		}
		d, err := sqlite.Open(ctx, string(p), &sqlite.Options{Logger: logger, BusyTimeout: o.patience, Now: faults.Now})
		if err != nil {
			return nil, err // not the nil *Driver
		}
		return d, nil
	}
	d, err := postgres.Open(ctx, string(p), &postgres.Options{Logger: logger, Patience: o.patience, NoMigrate: o.existing})
	if err != nil {
		return nil, p.notOpened(err)
	}
	return d, nil
}

// commandPatience is how long a person's command waits for a database that does not answer.
const commandPatience = 5 * time.Second

// withLog runs f on an effect log that is there already, for commands that hold no claims. They make
// none: at a wrong place it would look like one in which nothing is pending.
func withLog(cmd *cobra.Command, f func(log *store.Log) error) error {
	return withOpened(cmd, opening{existing: true}, f)
}

// withAnyLog runs f on the effect log, and begins one where there is none.
func withAnyLog(cmd *cobra.Command, f func(log *store.Log) error) error {
	return withOpened(cmd, opening{}, f)
}

func withOpened(cmd *cobra.Command, o opening, f func(log *store.Log) error) error {
	logger, err := newLogger(cmd)
	if err != nil {
		return err
	}
	if p, err := logPlace(cmd); err == nil && p.inPostgres() {
		o.patience = commandPatience
	}
	log, err := openLog(cmd, logger, o)
	if err != nil {
		return err
	}
	return errors.Join(f(log.Log), log.Close())
}
