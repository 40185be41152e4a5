package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

func TestOpen_Files(t *testing.T) {
	t.Run("the file and those beside it are their owner's alone", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state", "undolog")
		l := openLog(t, filepath.Join(dir, "log.db"))
		settleOne(t, l, 1)
		for name, want := range map[string]fs.FileMode{"": fs.ModeDir | 0o700, "log.db": 0o600, "log.db-wal": 0o600, "log.db-shm": 0o600} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != want {
				t.Errorf("%q has mode %s, want %s", name, info.Mode(), want)
			}
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 3 {
			t.Errorf("%d files, want 3 (%v)", len(entries), err)
		}
	})
	t.Run("a name may hold what URLs are made of", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a b?c=1#%41&mode=memory", "file:log.db")
		settleOne(t, openLog(t, path), 1)
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	})
}

func TestOpen_Refusals(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "notes.txt")
	writeFile(t, text, strings.Repeat("not a database\n", 100))
	other := filepath.Join(dir, "other.db")
	execute(t, other, `CREATE TABLE songs (name TEXT)`)
	newer := filepath.Join(dir, "newer.db")
	openAndClose(t, newer)
	execute(t, newer, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)`)

	for name, tc := range map[string]struct {
		path string
		is   error
		says string
	}{
		"a directory":                {dir, nil, "it is a directory"},
		"a file that is no database": {text, nil, "not an effect log"},
		"another program's database": {other, store.ErrSchema, "SQLite database of something else"},
		"a newer program's log":      {newer, store.ErrSchema, "use the newer undolog that wrote it"},
		"a file under a file":        {filepath.Join(text, "log.db"), nil, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := sqlite.Open(t.Context(), tc.path, nil)
			if err == nil {
				d.Close()
				t.Fatal("Open succeeded")
			}
			if !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), tc.path) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("Open = %v, want %q and the path", err, tc.says)
			}
		})
	}
	t.Run("and they are left as they were", func(t *testing.T) {
		if got, err := os.ReadFile(text); err != nil || string(got) != strings.Repeat("not a database\n", 100) {
			t.Errorf("the text file now reads %q, %v", got, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
			t.Errorf("%v, %v", entries, err)
		}
	})
}

func TestOpen_DamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	l := openLog(t, path)
	settleOne(t, l, 1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 8<<10), 100); err != nil { // the header stays, the schema goes
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := sqlite.Open(t.Context(), path, nil)
	if err == nil {
		d.Close()
		t.Fatal("Open succeeded")
	}
	if !strings.Contains(err.Error(), "damaged") {
		t.Errorf("Open = %v", err)
	}
}

func TestOpen_FreshFileByManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			d, err := sqlite.Open(context.Background(), path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// A schema is changed only by who has the file alone: a program that still runs must not find itself on
// a schema that it does not know.
func TestOpen_MigrationNeedsTheFileAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	lock, release := holdLock(t, path) // a file without a schema, in use by another program
	lock()
	opts := &sqlite.Options{BusyTimeout: 50 * time.Millisecond}
	if _, err := sqlite.Open(t.Context(), path, opts); !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "end them") {
		t.Errorf("Open = %v, want ErrSchema that says what to do", err)
	}
	release()
	openAndClose(t, path)
}

func TestWriter_LockHeldByAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	openAndClose(t, path)
	d, err := sqlite.Open(t.Context(), path, &sqlite.Options{BusyTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	lock, release := holdLock(t, path)
	lock()
	if err := d.Beat(t.Context(), "o", time.Second); !errors.Is(err, store.ErrBusy) {
		t.Errorf("Beat = %v, want ErrBusy", err)
	}
	patient, err := sqlite.Open(t.Context(), path, &sqlite.Options{BusyTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer patient.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := patient.Beat(ctx, "o", time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Beat with a short context = %v, want DeadlineExceeded", err)
	}
	release()
	if err := d.Beat(t.Context(), "o", time.Second); err != nil {
		t.Errorf("Beat afterwards: %v", err)
	}
}

// One bad row among many: it alone is refused.
func TestWriter_BadRowInGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	d, err := sqlite.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	lock, release := holdLock(t, path)
	lock() // so that they queue up and make one group
	const n = 20
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			kind := "ok"
			if i == 7 {
				kind = ""
			}
			errs[i] = d.Write(context.Background(), &store.Notes{Events: []effect.Event{
				{Tenant: "t", Kind: "first"}, {Tenant: "t", Kind: kind},
			}})
		})
	}
	release()
	all.Wait()
	for i, err := range errs {
		if (err != nil) != (i == 7) {
			t.Errorf("write %d: %v", i, err)
		}
	}
	events, err := d.Events(t.Context(), "t", 0, 1000)
	if err != nil || len(events) != 2*(n-1) {
		t.Errorf("%d events, want %d (%v)", len(events), 2*(n-1), err)
	}
}

// A file that has lost its name would take every record, and give none back to anybody.
func TestWriter_FileTakenAway(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, path string){
		"removed": func(t *testing.T, path string) { remove(t, path) },
		"replaced by another log": func(t *testing.T, path string) {
			remove(t, path)
			openAndClose(t, path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log.db")
			d, err := sqlite.Open(t.Context(), path, nil)
			if err != nil {
				t.Fatal(err)
			}
			l, err := store.Open(d, nil)
			if err != nil {
				t.Fatal(err)
			}
			settleOne(t, l, 1)
			take(t, path)
			if _, err := l.Begin(t.Context(), beginParams(t, irreversible, 2)); !errors.Is(err, store.ErrReplaced) {
				t.Errorf("Begin: %v, want ErrReplaced", err)
			}
			if err := l.Close(); !errors.Is(err, store.ErrReplaced) {
				t.Errorf("Close: %v, want ErrReplaced", err)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil {
			t.Fatal(err)
		}
	}
}

func settleOne(t *testing.T, l *store.Log, i int) {
	t.Helper()
	begun, err := l.Begin(t.Context(), beginParams(t, irreversible, i))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Settle(t.Context(), *begun.Claim, irreversible, answer); err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func openAndClose(t *testing.T, path string) {
	t.Helper()
	d, err := sqlite.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func execute(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(fmt.Errorf("execute %s: %w", statement, err))
	}
}

// holdLock returns how to take and to release the file's write lock as another program would.
func holdLock(t *testing.T, path string) (lock, release func()) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	do := func(statement string) func() {
		return func() {
			t.Helper()
			if _, err := db.ExecContext(context.Background(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	return do(`BEGIN IMMEDIATE`), do(`ROLLBACK`)
}
