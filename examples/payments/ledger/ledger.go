package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// Options configures a Ledger.
type Options struct {
	// HonourKeys makes Append look for an entry of the same tool and key first, as a target does that
	// supports idempotency keys. Defaults to false.
	HonourKeys bool
	// NoSync leaves the sync after each write out. Defaults to false.
	NoSync bool
}

// Ledger appends effects to a file. It is safe for concurrent use, by several processes too.
type Ledger struct {
	opts Options

	mu     sync.Mutex
	file   *os.File
	size   int64            // bytes read so far
	count  int64            // entries in them
	byTool map[string]int64 // and of each tool
	keyed  map[toolKey]Entry
}

type toolKey struct{ tool, key string }

// Open opens the ledger at path and creates it, mode 0600, when it is not there.
func Open(path string, opts *Options) (*Ledger, error) {
	if opts == nil {
		opts = &Options{}
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &Ledger{opts: *opts, file: file, byTool: map[string]int64{}, keyed: map[toolKey]Entry{}}, nil
}

// Close closes the file.
func (l *Ledger) Close() error { return l.file.Close() }

// Append records one effect and returns it as recorded: it numbers the entry, and names it by prefix
// and its number among the tool's entries when prefix is not empty. The entry is durable when Append
// returns. With HonourKeys an entry of the same tool and key is returned in its place, with fresh false
// and nothing written.
func (l *Ledger) Append(e Entry, prefix string) (recorded Entry, fresh bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.locked(func() error {
		if old, ok := l.keyed[toolKey{e.Tool, e.Key}]; ok {
			recorded = old
			return nil
		}
		recorded, fresh = l.number(e, prefix), true
		return l.write(recorded)
	})
	if err != nil {
		return Entry{}, false, fmt.Errorf("append to ledger: %w", err)
	}
	return recorded, fresh, nil
}

// Count returns how many effects a tool has had.
func (l *Ledger) Count(tool string) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var n int64
	err := l.locked(func() error { n = l.byTool[tool]; return nil })
	return n, err
}

// Entries reads the whole file.
func (l *Ledger) Entries() ([]Entry, error) { return Read(l.file.Name()) }

// locked runs f under the file's lock, after catching up with what other processes have appended.
func (l *Ledger) locked(f func() error) error {
	fd := int(l.file.Fd())
	if err := retryInterrupted(func() error { return syscall.Flock(fd, syscall.LOCK_EX) }); err != nil {
		return fmt.Errorf("lock file: %w", err)
	}
	err := l.catchUp()
	if err == nil {
		err = f()
	}
	return errors.Join(err, syscall.Flock(fd, syscall.LOCK_UN))
}

func (l *Ledger) catchUp() error {
	info, err := l.file.Stat()
	if err != nil || info.Size() == l.size {
		return err
	}
	data, err := io.ReadAll(io.NewSectionReader(l.file, l.size, info.Size()-l.size))
	if err != nil {
		return fmt.Errorf("read on: %w", err)
	}
	entries, n, err := parse(data)
	if err != nil {
		return err
	}
	for _, e := range entries {
		l.note(e)
	}
	l.size += int64(n)
	return nil
}

func (l *Ledger) note(e Entry) {
	l.count++
	l.byTool[e.Tool]++
	if l.opts.HonourKeys && e.Key != "" {
		l.keyed[toolKey{e.Tool, e.Key}] = e
	}
}

func (l *Ledger) number(e Entry, prefix string) Entry {
	e.Seq, e.Time, e.PID = l.count+1, time.Now().UTC().Truncate(time.Microsecond), os.Getpid()
	if prefix != "" {
		e.ID = fmt.Sprintf("%s_%d", prefix, l.byTool[e.Tool]+1)
	}
	return e
}

func (l *Ledger) write(e Entry) error {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return fmt.Errorf("encode entry: %w", err)
	}
	if _, err := l.file.Write(line.Bytes()); err != nil {
		return fmt.Errorf("write entry: %w", err)
	}
	l.size += int64(line.Len())
	l.note(e)
	if l.opts.NoSync {
		return nil
	}
	return l.file.Sync()
}

func retryInterrupted(f func() error) error {
	for {
		if err := f(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
