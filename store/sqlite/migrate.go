package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/undolog/undolog/store"
)

//go:embed migration/*.sql
var migrations embed.FS

// schemaVersion is the version this program reads and writes: the number of its newest migration.
const schemaVersion = 3

// Migration is one step of the schema.
type Migration struct {
	Version   int64
	Name      string
	Applied   bool
	AppliedAt time.Time
}

// Status tells which migrations were applied to the file, oldest first. It changes nothing; a file that is
// not there is fs.ErrNotExist.
func Status(ctx context.Context, path string) ([]Migration, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("read migrations of log: %w", err)
	}
	steps, err := newDriver(path, nil).steps(ctx)
	if err != nil {
		return nil, fmt.Errorf("read migrations of log %s: %w", path, explain(err))
	}
	return steps, nil
}

func (d *Driver) steps(ctx context.Context) (steps []Migration, err error) {
	version, err := d.fileVersion(ctx)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", d.dsn("query_only(1)"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := newProvider(db)
	if err != nil {
		return nil, err
	}
	for _, s := range provider.ListSources() {
		step := Migration{Version: s.Version, Name: s.Path, Applied: s.Version <= version}
		if step.Applied {
			err := db.QueryRowContext(ctx, `SELECT tstamp FROM goose_db_version WHERE version_id = ?`, s.Version).Scan(&step.AppliedAt)
			if err != nil {
				return nil, err
			}
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// migrate brings the file to this program's schema. It looks without a lock first, since nearly always
// there is nothing to do; a migration runs under SQLite's exclusive lock, and whoever loses the race for
// a fresh file finds it done when it looks again.
func (d *Driver) migrate(ctx context.Context) error {
	deadline := time.Now().Add(d.busy)
	for {
		done, err := d.tryMigrate(ctx)
		switch {
		case done, err != nil && !isBusy(err):
			return err
		case err == nil:
			continue // migrated: look again
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: its schema is older and other programs have it open; end them and try again", store.ErrSchema)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5*time.Millisecond + rand.N(20*time.Millisecond)):
		}
	}
}

func (d *Driver) tryMigrate(ctx context.Context) (done bool, err error) {
	version, err := d.fileVersion(ctx)
	switch {
	case err != nil:
		return false, err
	case version == schemaVersion:
		return true, nil
	case version > schemaVersion:
		return false, fmt.Errorf("%w: it has version %d and this program knows %d; use the newer undolog that wrote it, or another file",
			store.ErrSchema, version, schemaVersion)
	}
	return false, d.runMigrations(ctx)
}

// fileVersion is the newest migration applied to the file; 0 when it is fresh.
func (d *Driver) fileVersion(ctx context.Context) (version int64, err error) {
	db, err := sql.Open("sqlite", d.dsn("query_only(1)"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var tables, versioned int
	err = db.QueryRowContext(ctx, `
		SELECT COUNT(*), COUNT(*) FILTER (WHERE name = 'goose_db_version')
		FROM sqlite_schema
		WHERE type = 'table'`).Scan(&tables, &versioned)
	switch {
	case err != nil:
		return 0, err
	case tables > 0 && versioned == 0:
		return 0, fmt.Errorf("%w: it is a SQLite database of something else; name another file", store.ErrSchema)
	case tables == 0:
		return 0, nil
	}
	err = db.QueryRowContext(ctx, `SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version`).Scan(&version)
	return version, err
}

// runMigrations holds the file alone while it migrates: in locking_mode EXCLUSIVE the connection keeps
// its lock from the first write until it is closed, over all of goose's transactions.
func (d *Driver) runMigrations(ctx context.Context) (err error) {
	db, err := sql.Open("sqlite", d.dsn("locking_mode(EXCLUSIVE)", "journal_mode(WAL)", "synchronous(FULL)"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	// The lock must be ours before goose looks at the version, or two would migrate in turn.
	if _, err := db.ExecContext(ctx, `BEGIN EXCLUSIVE; COMMIT`); err != nil {
		return err
	}
	provider, err := newProvider(db)
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migration")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true))
}
