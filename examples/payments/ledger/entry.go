package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Entry is one effect. Arguments and Effect are kept as they came, so that big integers keep every
// digit.
type Entry struct {
	Seq       int64           `json:"seq"` // position in the file, from 1
	Tool      string          `json:"tool"`
	ID        string          `json:"id,omitempty"` // what the tool made, such as ch_1
	Arguments json.RawMessage `json:"arguments"`
	Key       string          `json:"idempotencyKey,omitempty"` // _meta.idempotencyKey of the call
	Effect    json.RawMessage `json:"effect,omitempty"`         // _meta["dev.undolog/effect"] of the call
	Time      time.Time       `json:"time"`
	PID       int             `json:"pid"`
}

// Read returns the entries of the file at path in order. A file that does not exist has none. A last
// line without its newline is being written and is left out.
func Read(path string) ([]Entry, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	entries, _, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("read ledger %s: %w", path, err)
	}
	return entries, nil
}

// Of returns the entries of one tool.
func Of(entries []Entry, tool string) []Entry {
	var of []Entry
	for _, e := range entries {
		if e.Tool == tool {
			of = append(of, e)
		}
	}
	return of
}

// parse returns the entries of data's whole lines and how many bytes those are.
func parse(data []byte) (entries []Entry, size int, err error) {
	for {
		n := bytes.IndexByte(data[size:], '\n')
		if n < 0 {
			return entries, size, nil
		}
		var e Entry
		if err := json.Unmarshal(data[size:size+n], &e); err != nil {
			return nil, 0, fmt.Errorf("parse line %d: %w", len(entries)+1, err)
		}
		entries = append(entries, e)
		size += n + 1
	}
}
