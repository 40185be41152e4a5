package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/undolog/undolog/store"
)

// Options are what may be set about a Driver; nil stands for all defaults.
type Options struct {
	// Logger is told of a file that others may read and of waits for the lock. Defaults to silence.
	Logger *slog.Logger
	// Now is the clock of everything recorded and decided. Defaults to time.Now.
	Now func() time.Time
	// BusyTimeout is how long a write waits for other processes before store.ErrBusy. Defaults to 30 s.
	BusyTimeout time.Duration
}

// Driver is the log in one SQLite file. It is safe for concurrent use, and so is the file.
type Driver struct {
	path   string
	logger *slog.Logger
	now    func() time.Time
	busy   time.Duration

	readers *sql.DB
	writer  *writer

	closeOnce sync.Once
	closeErr  error
}

var _ store.Driver = (*Driver)(nil)

// Open opens the log at path, creating the file (mode 0600), its directory (0700) and its schema as
// needed. A file of an older program is migrated, for which nobody else may have it open; one of a newer
// program is store.ErrSchema. Several processes may open one fresh file at once.
func Open(ctx context.Context, path string, opts *Options) (*Driver, error) {
	d := newDriver(path, opts)
	if err := d.open(ctx); err != nil {
		return nil, fmt.Errorf("open log %s: %w", path, explain(err))
	}
	return d, nil
}

func newDriver(path string, opts *Options) *Driver {
	if opts == nil {
		opts = &Options{}
	}
	d := &Driver{path: path, logger: opts.Logger, now: opts.Now, busy: opts.BusyTimeout}
	if d.logger == nil {
		d.logger = slog.New(slog.DiscardHandler)
	}
	if d.now == nil {
		d.now = time.Now
	}
	if d.busy <= 0 {
		d.busy = 30 * time.Second
	}
	return d
}

func (d *Driver) open(ctx context.Context) error {
	// Most builds of SQLite use fdatasync; this one asks to be told. Where there is none, fsync stays.
	if _, err := sqlite.Fdatasync(true); err != nil && !errors.Is(err, sqlite.ErrFdatasyncUnavailable) {
		return err
	}
	if err := d.prepareFile(); err != nil {
		return err
	}
	if err := d.migrate(ctx); err != nil {
		return err
	}
	readers, err := sql.Open("sqlite", d.dsn("query_only(1)", fmt.Sprintf("busy_timeout(%d)", d.busy.Milliseconds())))
	if err != nil {
		return err
	}
	readers.SetMaxOpenConns(4)
	d.readers = readers
	d.writer, err = d.startWriter(ctx)
	if err != nil {
		return errors.Join(err, readers.Close())
	}
	return nil
}

// prepareFile makes the file with its final mode before SQLite opens it: the WAL and its index inherit
// the mode. The file is linked into place whole, because closing a descriptor of a file that SQLite has
// open elsewhere in this process would drop SQLite's locks on it (POSIX, fcntl).
func (d *Driver) prepareFile() error {
	if info, err := os.Stat(d.path); err == nil {
		return d.checkFile(info)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := filepath.Dir(d.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, filepath.Base(d.path)+".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	if err := temp.Close(); err != nil {
		return err
	}
	if err := os.Link(temp.Name(), d.path); err != nil && !errors.Is(err, fs.ErrExist) {
		return createPlain(d.path) // a file system without links
	}
	return nil
}

func createPlain(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

func (d *Driver) checkFile(info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return errors.New("it is a directory; name a file")
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	case info.Mode().Perm()&0o077 != 0:
		d.logger.Warn("log file can be read by others", slog.String("path", d.path), slog.String("mode", info.Mode().Perm().String()))
	}
	return nil
}

// dsn names the file to SQLite; pragmas are applied to every connection in order.
func (d *Driver) dsn(pragmas ...string) string {
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(d.path)}).EscapedPath()}
	u.RawQuery = url.Values{"_pragma": pragmas, "_txlock": {"immediate"}}.Encode()
	return u.String()
}

// Close waits for the writes already begun and closes the file. It does not end any owner's heartbeat.
func (d *Driver) Close() error {
	d.closeOnce.Do(func() {
		d.closeErr = errors.Join(d.writer.close(), d.readers.Close())
	})
	return d.closeErr
}

// micros is a time as the file has it.
func micros(t time.Time) int64 { return t.UnixMicro() }

// nullMicros is a time that may be absent.
func nullMicros(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: t.UnixMicro(), Valid: !t.IsZero()}
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

func fromNullMicros(us sql.NullInt64) time.Time {
	if !us.Valid {
		return time.Time{}
	}
	return fromMicros(us.Int64)
}
