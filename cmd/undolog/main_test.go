package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

const missing = "0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42"

// said is what a command line printed, and its exit code.
func said(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out lockedBuffer
	code := run(t.Context(), args, strings.NewReader(""), &out, &out)
	return out.String(), code
}

// lockedBuffer takes what a command says and, beside it, the programs that it has started.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestRun_refusalsSayWhatToDo(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	read := recordRead(t, db)
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no such command":        {[]string{"lgo"}, exitUsage, `did you mean "undolog log"?`},
		"no such policy command": {[]string{"policy", "frob"}, exitUsage, `see "undolog policy --help"`},
		"flag of the server":     {[]string{"gateway", "npx", "-y", "x"}, exitUsage, `put "--" before the server's command`},
		"address without a port": {[]string{"gateway", "--http", "localhost", "--", "cat"}, exitUsage, "want HOST:PORT"},
		"upstream is no URL":     {[]string{"gateway", "--upstream", "x"}, exitUsage, "want http://HOST/PATH"},
		"no such effect":         {[]string{"show", missing}, exitNotFound, "--tenant"},
		"no effect to resolve":   {[]string{"resolve", missing, "--committed"}, exitNotFound, `"undolog log"`},
		"no effect to repeat":    {[]string{"again", missing}, exitNotFound, `"undolog log"`},
		"a read again":           {[]string{"again", read}, exitConflict, "equal calls always run"},
		"resolve what is done":   {[]string{"resolve", read, "--committed"}, exitConflict, "only one in doubt or waiting"},
		"prune all that is old":  {[]string{"prune"}, exitUsage, "--older-than 30d, or --policy FILE"},
		"prune what is no age":   {[]string{"prune", "--older-than", "0s"}, exitUsage, "--older-than 0s: want longer than nothing"},
		"version by flag":        {[]string{"--version"}, exitOK, runtime.Version()},
		"prune by two ages":      {[]string{"prune", "--older-than", "30d", "--policy", "p.yaml"}, exitUsage, "cannot both be meant"},
		"prune for two tenants":  {[]string{"prune", "--older-than", "30d", "--all-tenants", "--tenant", "other"}, exitUsage, "cannot both be meant"},
		"prune what is young":    {[]string{"prune", "--older-than", "30d"}, exitOK, "pruned 0 effects of"},
		"prune, as JSON":         {[]string{"prune", "--older-than", "1w", "--json"}, exitOK, `"effects":0`},
		"state of undo":          {[]string{"log", "--state", "compensating"}, exitUsage, "want one of awaiting_approval, claimed, "},
		"no help on a command":   {[]string{"help", "frob"}, exitUsage, "undolog --help"},
		"help on a command":      {[]string{"help", "grant", "give"}, exitOK, "undolog grant give"},
		"tenant without a name":  {[]string{"log", "--tenant", ""}, exitUsage, "--tenant is empty"},
		"a read approved":        {[]string{"approve", read}, exitConflict, "never awaited approval"},
		"another tenant's log":   {[]string{"log", "--tenant", "other"}, exitOK, "no effects of tenant other"},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := said(t, append([]string{"--db", db}, c.args...)...)
			if code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want %d; said %q, want in it %q", code, c.code, out, c.want)
			}
		})
	}
}

func TestLog_saysThatArgumentsArePruned(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	id := asked(t, db, "10")[0]
	doSteps(t, db,
		step{[]string{"log"}, exitOK, `{"amount":10}  ` + id},
		step{[]string{"deny", id, "--reason", "no"}, exitOK, "is denied"},
	)
	doSteps(t, db,
		step{[]string{"prune", "--older-than", "1ms"}, exitOK, "pruned 1 effects of 1"},
		step{[]string{"log"}, exitOK, "(pruned)   " + id},
		step{[]string{"show", id}, exitOK, "(pruned)"},
	)
}

// recordRead leaves a log with one read in it and returns its id.
func recordRead(t *testing.T, db string) string {
	t.Helper()
	driver, err := sqlite.Open(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	log, err := store.Open(driver, nil)
	if err != nil {
		t.Fatal(err)
	}
	log.RecordRead(&effect.Record{Server: "files", Tool: "read_file", Rule: effect.RuleNone, State: effect.StateCommitted})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	out, _ := said(t, "--db", db, "log", "--json")
	var r effectJSON
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return r.ID
}

func TestRun_filesWithoutAnEndAreTooLarge(t *testing.T) {
	const endless = "/dev/zero"
	for _, kind := range []string{"policy", "chain"} {
		if out, code := said(t, kind, "check", endless); code != exitFailed || !strings.Contains(out, "has at most") {
			t.Errorf("%s check: exit code %d, said %q", kind, code, out)
		}
	}
}

func TestRun_looksAtNoLogThatIsNotThere(t *testing.T) {
	db := filepath.Join(t.TempDir(), "elsewhere", "log.db")
	for _, args := range [][]string{{"log"}, {"pending", "--json"}, {"show", missing}, {"again", missing}, {"resolve", missing, "--committed"}} {
		out, code := said(t, append([]string{"--db", db}, args...)...)
		if code != exitFailed || !strings.Contains(out, "there is no effect log at "+db) {
			t.Errorf("%v: exit code %d, said %q", args, code, out)
		}
	}
	if _, err := os.Stat(db); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a log was made: %v", err)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// A script that reads what was not written must not take it for all there is.
func TestRun_outputThatIsNotWrittenIsAFailure(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	id := asked(t, db, "10")[0]
	for _, args := range [][]string{
		{"log"}, {"pending"}, {"approvals", "--digests"}, {"grant", "list"}, {"events"}, {"reap"}, {"approve", id}, {"show", id, "--json"}, {"--help"}, {"help", "db"}, {"version"},
	} {
		var errs lockedBuffer
		code := run(t.Context(), append([]string{"--db", db}, args...), strings.NewReader(""), fullDisk{}, &errs)
		if code != exitFailed || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("%v: exit code %d, said %q", args, code, errs.String())
		}
	}
}

// An interrupt is told as one, and is no verdict on what was not tried.
func TestRun_interrupted(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	recordRead(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"conformance", "--", "sleep", "60"}, {"policy", "init", "--", "sleep", "60"}, {"log", "--db", db}} {
		var out lockedBuffer
		if code := run(ctx, args, strings.NewReader(""), &out, &out); code != exitFailed || out.String() != "undolog: interrupted before it was done\n" {
			t.Errorf("%v: exit code %d, said %q", args, code, out.String())
		}
	}
}
