package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/undolog/undolog/store"
)

// dbVariable names the effect log where --db does not.
const dbVariable = "UNDOLOG_DB"

// place is where an effect log is kept: a SQLite file, or the PostgreSQL database that a URL names.
type place string

// logPlace is the place that --db, the environment or the default names.
func logPlace(cmd *cobra.Command) (place, error) {
	named, err := cmd.Flags().GetString("db")
	if err != nil {
		return "", err
	}
	if named == "" {
		named = os.Getenv(dbVariable)
	}
	if named == "" {
		dir, err := stateDir()
		if err != nil {
			return "", err
		}
		named = filepath.Join(dir, "undolog", "undolog.db")
	}
	p := place(named)
	return p, p.check()
}

// inPostgres reports whether the place is a database, and not a file.
func (p place) inPostgres() bool {
	return strings.HasPrefix(string(p), "postgres://") || strings.HasPrefix(string(p), "postgresql://")
}

var errAddress = usagef("--db: the address cannot be read: want postgres://ROLE:PASSWORD@HOST:PORT/DATABASE; " +
	"write what is special in a password in percent-encoding, or leave it out and set PGPASSWORD")

// check refuses an address that cannot be read. It says nothing of it: any part may be one of a password.
func (p place) check() error {
	if p.inPostgres() {
		if _, err := url.Parse(string(p)); err != nil || p.hasLooseAt() {
			return errAddress
		}
		return nil
	}
	if scheme, _, isURL := strings.Cut(string(p), "://"); isURL {
		return usagef("--db: a log is kept in a SQLite file or behind postgres://, not behind %s://", scheme)
	}
	if meantForPostgres.MatchString(string(p)) {
		return errAddress
	}
	return nil
}

// meantForPostgres is how addresses of databases begin that would pass for the name of a file: libpq's
// key=value words, and URLs that lack slashes. A file of such a name is ./NAME.
var meantForPostgres = regexp.MustCompile(`(?i)^\s*(postgres(ql)?:|(host|hostaddr|port|dbname|user|password|passfile|service|sslmode)\s*=)`)

// hasLooseAt reports whether a @ stands in the role or the password as it is: net/url ends the password at the
// last one, pgx at the first, and would say the rest as the name of a host.
func (p place) hasLooseAt() bool {
	_, address, _ := strings.Cut(string(p), "://")
	if end := strings.IndexAny(address, "/?#"); end >= 0 {
		address = address[:end]
	}
	return strings.Count(address, "@") > 1
}

// String is the place as it may be shown: without role, password and parameters.
func (p place) String() string {
	if !p.inPostgres() {
		return string(p)
	}
	return withoutSecrets(string(p))
}

// keepFromServers takes the address of a database out of our environment, so that the servers that we
// start do not get it with its password.
func (p place) keepFromServers() error {
	if !p.inPostgres() {
		return nil
	}
	return os.Unsetenv(dbVariable)
}

// notOpened says which log could not be opened. Of an address that cannot be used nothing is repeated: pgx
// hides the password before the @, and none among the parameters.
func (p place) notOpened(err error) error {
	var parse *pgconn.ParseConfigError
	if !errors.As(err, &parse) {
		return fmt.Errorf("%s: %w%s", p, err, advice(err))
	}
	said := parse.Error()
	end := strings.LastIndex(said, "`: ")
	if end < 0 {
		return errAddress
	}
	return usagef("--db: %s", said[end+len("`: "):])
}

// SQLSTATE codes of a connection that is refused (PostgreSQL, appendix A).
const (
	invalidRole     = "28000"
	invalidPassword = "28P01"
	noSuchDatabase  = "3D000"
)

// advice says what a person can do about a database that cannot be used; the driver does so of one that
// can be reached.
func advice(err error) string {
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && (refused.Code == invalidPassword || refused.Code == invalidRole):
		return "\ngive the role's password in UNDOLOG_DB, PGPASSWORD or ~/.pgpass; pg_hba.conf says who may connect from where"
	case errors.As(err, &refused) && refused.Code == noSuchDatabase:
		return "\nas a superuser run: CREATE DATABASE … OWNER … ENCODING 'UTF8'"
	case errors.Is(err, store.ErrUnreachable):
		return "\ndoes PostgreSQL run there, and may this machine connect to it?"
	}
	return ""
}

// isThere fails where no log has been begun. A database says so itself when it is opened.
func (p place) isThere() error {
	if p.inPostgres() {
		return nil
	}
	if _, err := os.Stat(string(p)); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no effect log at %s: the first \"undolog gateway\" begins it; --db or UNDOLOG_DB names another", p)
	}
	return nil
}

// stateDir is where programs keep state of the user: the XDG base directory, or what stands for it.
func stateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	if runtime.GOOS == "windows" {
		return os.UserCacheDir()
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find state directory: %w; name the log with --db", err)
	}
	return filepath.Join(home, ".local", "state"), nil
}
