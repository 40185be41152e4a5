package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/undolog/undolog/store"
)

//go:embed migration/*.sql
var migrations embed.FS

// schemaVersion is the version this program reads and writes: the number of its newest migration.
const schemaVersion = 5

// versionTable is where goose notes what was applied.
const versionTable = "undolog.goose_db_version"

// Migration is one step of the schema.
type Migration struct {
	Version   int64
	Name      string
	Applied   bool
	AppliedAt time.Time
}

// Migrate brings the database to this program's schema. Any number of programs may do so at once: one does,
// and the others find it done. Programs of the version before may go on meanwhile. A newer schema stays as it
// is, and is store.ErrSchema when it says that this program cannot use it.
func Migrate(ctx context.Context, url string) error {
	if err := withDatabase(url, func(db *sql.DB) error { return migrate(ctx, db) }); err != nil {
		return fmt.Errorf("migrate log: %w", explain(err))
	}
	return nil
}

// Status tells which migrations were applied to the database, oldest first. Those of a newer program have no
// name.
func Status(ctx context.Context, url string) (steps []Migration, err error) {
	err = withDatabase(url, func(db *sql.DB) error {
		steps, err = status(ctx, db)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read migrations of log: %w", explain(err))
	}
	return steps, nil
}

// unhurried are the limits on time that a migration must not be under, which waits for other programs' and stands
// idle while its steps are taken: 0 is none. They are the connection's own, and end with it.
var unhurried = map[string]string{
	"statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0", "idle_session_timeout": "0",
}

// withDatabase lends connections that prepare nothing, so that a pooler may be on the way. One that shares connections
// takes no settings for one: there the limits of the role hold.
func withDatabase(url string, use func(*sql.DB) error) error {
	err := lendDatabase(url, unhurried, use)
	if code(err) != protocolViolation {
		return err
	}
	err = lendDatabase(url, nil, use)
	switch code(err) {
	case idleInTransaction, transactionTimeout, queryCanceled, lockNotAvailable:
		return fmt.Errorf("%w: %w", errHurried, err)
	}
	return err
}

var errHurried = errors.New("a limit on time of the role or the database ended a migration: run undolog migrate up with the server's own address in place of " +
	"the pooler's, or lift statement_timeout, lock_timeout and idle_in_transaction_session_timeout of the role (ALTER ROLE … SET … = 0)")

func lendDatabase(url string, settings map[string]string, use func(*sql.DB) error) (err error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	delete(config.RuntimeParams, "pool_max_conns")
	config.RuntimeParams["datestyle"] = dateStyle
	maps.Copy(config.RuntimeParams, settings)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	var options []stdlib.OptionOpenDB
	if settings != nil {
		options = append(options, stdlib.OptionAfterConnect(liftTransactionTimeout))
	}
	db := stdlib.OpenDB(*config, options...)
	defer func() { err = errors.Join(err, db.Close()) }()
	return use(db)
}

// liftTransactionTimeout is for a limit that servers before PostgreSQL 17 do not know, and refuse to set.
func liftTransactionTimeout(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout'`)
	return err
}

// migrate holds a lock of its own transaction over goose's, and none of a session: it ends with the
// connection, whatever becomes of the program, and through poolers too.
func migrate(ctx context.Context, db *sql.DB) (err error) {
	lock, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Rollback()) }()
	if _, err := lock.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('undolog.migrate', 0))`); err != nil {
		return err
	}
	switch version, err := version(ctx, db); {
	case err != nil:
		return err
	case version > schemaVersion:
		return checkCompatible(ctx, db, version)
	case version == schemaVersion:
		return nil
	}
	if err := checkEncoding(ctx, db); err != nil {
		return err
	}
	// Not IF NOT EXISTS alone: who may not create schemas may still use one that was made for it.
	if _, err := db.ExecContext(ctx, `
		DO $$ BEGIN
		  IF to_regnamespace('undolog') IS NULL THEN
		    CREATE SCHEMA undolog;
		  END IF;
		END $$`); err != nil {
		return err
	}
	provider, err := newProvider(db)
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

// checkEncoding refuses a database that cannot hold every text.
func checkEncoding(ctx context.Context, db *sql.DB) error {
	var encoding string
	if err := db.QueryRowContext(ctx, `SELECT current_setting('server_encoding')`).Scan(&encoding); err != nil {
		return err
	}
	if encoding != "UTF8" {
		return fmt.Errorf("the database's encoding is %s: create one with ENCODING 'UTF8'", encoding)
	}
	return nil
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migration")
	if err != nil {
		return nil, err
	}
	versions, err := database.NewStore(database.DialectPostgres, versionTable)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider("", db, files, goose.WithStore(versions), goose.WithDisableGlobalRegistry(true))
}

func status(ctx context.Context, db *sql.DB) ([]Migration, error) {
	provider, err := newProvider(db)
	if err != nil {
		return nil, err
	}
	applied, err := appliedAt(ctx, db)
	if err != nil {
		return nil, err
	}
	var steps []Migration
	for _, s := range provider.ListSources() {
		at, done := applied[s.Version]
		steps = append(steps, Migration{Version: s.Version, Name: s.Path, Applied: done, AppliedAt: at})
	}
	for _, v := range slices.Sorted(maps.Keys(applied)) {
		if v > schemaVersion {
			steps = append(steps, Migration{Version: v, Applied: true, AppliedAt: applied[v]})
		}
	}
	return steps, nil
}

func appliedAt(ctx context.Context, db *sql.DB) (applied map[int64]time.Time, err error) {
	if v, err := version(ctx, db); err != nil || v == 0 {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, `SELECT version_id, tstamp FROM `+versionTable+` WHERE is_applied`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	applied = map[int64]time.Time{}
	for rows.Next() {
		var v int64
		var at time.Time
		if err := rows.Scan(&v, &at); err != nil {
			return nil, err
		}
		applied[v] = at
	}
	return applied, rows.Err()
}

// version is the newest migration applied to the database; 0 when it has no schema of ours.
func version(ctx context.Context, db *sql.DB) (v int64, err error) {
	err = db.QueryRowContext(ctx, `SELECT COALESCE(MAX(version_id), 0) FROM `+versionTable).Scan(&v)
	if c := code(err); c == undefinedTable || c == invalidSchema {
		return 0, nil
	}
	return v, err
}

// checkSchema migrates an older schema, unless that is somebody else's to do.
func (d *Driver) checkSchema(ctx context.Context, url string, noMigrate bool) error {
	var v int64
	err := d.retry(ctx, func(ctx context.Context) error {
		return withDatabase(url, func(db *sql.DB) (err error) {
			v, err = version(ctx, db)
			return err
		})
	})
	switch {
	case err != nil:
		return err
	case v == schemaVersion:
		return nil
	case v > schemaVersion:
		return withDatabase(url, func(db *sql.DB) error { return checkCompatible(ctx, db, v) })
	case noMigrate:
		return fmt.Errorf("%w: the database has version %d and this program needs %d; run: undolog migrate up", store.ErrSchema, v, schemaVersion)
	}
	err = withDatabase(url, func(db *sql.DB) error { return migrate(ctx, db) })
	if lacksRights(err) {
		return fmt.Errorf("%w: the database has version %d, this program needs %d and its role may not migrate; as a role that may, run: undolog migrate up: %w",
			store.ErrSchema, v, schemaVersion, err)
	}
	return err
}

func checkCompatible(ctx context.Context, db *sql.DB, v int64) error {
	var oldest int64
	if err := db.QueryRowContext(ctx, `SELECT oldest FROM undolog.compatibility`).Scan(&oldest); err != nil {
		return err
	}
	if oldest > schemaVersion {
		return fmt.Errorf("%w: the database has version %d, for programs from %d on, and this one knows %d; use a newer undolog", store.ErrSchema, v, oldest, schemaVersion)
	}
	return nil
}
