package ledger_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/examples/payments/ledger"
)

func TestLedger_Append(t *testing.T) {
	t.Run("keeps arguments digit for digit", func(t *testing.T) {
		l, path := open(t, nil)
		args := json.RawMessage(`{"amount":9007199254740993,"rate":1.0e2,"to":"<a&b>"}`)
		add(t, l, ledger.Entry{Tool: "charge", Arguments: args})
		got := read(t, path)
		if diff := cmp.Diff(string(args), string(got[0].Arguments)); diff != "" {
			t.Errorf("arguments (-want +got)\n%s", diff)
		}
	})
	t.Run("numbers entries across two writers of one file", func(t *testing.T) {
		a, path := open(t, nil)
		b, err := ledger.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		var writers sync.WaitGroup
		for _, l := range []*ledger.Ledger{a, b} {
			writers.Go(func() {
				for range 20 {
					add(t, l, ledger.Entry{Tool: "charge", Arguments: json.RawMessage(`{}`)})
				}
			})
		}
		writers.Wait()
		entries := read(t, path)
		ids := map[string]bool{}
		for i, e := range entries {
			ids[e.ID] = true
			if e.Seq != int64(i+1) {
				t.Errorf("entry %d has seq %d", i, e.Seq)
			}
		}
		if len(entries) != 40 || len(ids) != 40 {
			t.Errorf("%d entries with %d ids, want 40 of both", len(entries), len(ids))
		}
	})
	t.Run("a key is honoured once when asked for, after a restart too", func(t *testing.T) {
		first, path := open(t, &ledger.Options{HonourKeys: true})
		e := ledger.Entry{Tool: "charge", Key: "k", Arguments: json.RawMessage(`{}`)}
		want, fresh := add(t, first, e)
		if !fresh {
			t.Fatal("the first append wrote nothing")
		}
		again, err := ledger.Open(path, &ledger.Options{HonourKeys: true})
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		got, fresh := add(t, again, e)
		if fresh || got.ID != want.ID {
			t.Errorf("second append: id %s, fresh %t; want %s, false", got.ID, fresh, want.ID)
		}
		if _, fresh := add(t, again, ledger.Entry{Tool: "refund", Key: "k", Arguments: json.RawMessage(`{}`)}); !fresh {
			t.Error("the key of one tool was taken for another's")
		}
	})
	t.Run("a key means nothing when not asked for", func(t *testing.T) {
		l, path := open(t, nil)
		for range 2 {
			add(t, l, ledger.Entry{Tool: "charge", Key: "k", Arguments: json.RawMessage(`{}`)})
		}
		if n := len(read(t, path)); n != 2 {
			t.Errorf("%d entries, want 2", n)
		}
	})
}

func TestRead(t *testing.T) {
	t.Run("a missing file has no entries", func(t *testing.T) {
		if n := len(read(t, filepath.Join(t.TempDir(), "none"))); n != 0 {
			t.Errorf("%d entries", n)
		}
	})
	t.Run("a line still being written is left out", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "ledger")
		if err := os.WriteFile(path, []byte("{\"seq\":1,\"tool\":\"a\"}\n{\"seq\":2,"), 0o600); err != nil {
			t.Fatal(err)
		}
		if n := len(read(t, path)); n != 1 {
			t.Errorf("%d entries, want 1", n)
		}
	})
}

func open(t *testing.T, opts *ledger.Options) (*ledger.Ledger, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	l, err := ledger.Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, path
}

func add(t *testing.T, l *ledger.Ledger, e ledger.Entry) (ledger.Entry, bool) {
	t.Helper()
	got, fresh, err := l.Append(e, "id")
	if err != nil {
		t.Error(err)
	}
	return got, fresh
}

func read(t *testing.T, path string) []ledger.Entry {
	t.Helper()
	entries, err := ledger.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}
