package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/effectjson"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

// asked leaves a log in which calls of refund wait for approval, one for each amount, and returns their ids.
func asked(t *testing.T, db string, amounts ...string) (ids []string) {
	t.Helper()
	withStore(t, db, func(log *store.Log) {
		for _, amount := range amounts {
			begun := beginRefund(t, log, amount)
			if begun.Verdict.Action != effect.ActRequest {
				t.Fatalf("Begin of %s = %s, want a request", amount, begun.Verdict.Action)
			}
			ids = append(ids, begun.Record.ID)
		}
	})
	return ids
}

func beginRefund(t *testing.T, log *store.Log, amount string, change ...func(*effect.Call)) *store.Begun {
	t.Helper()
	contract := effect.DefaultContract(nil, false)
	contract.Approve = true
	contract.Asking = effect.Asking{Quorum: 1, DecideFor: time.Hour, UseFor: time.Hour}
	call := &effect.Call{Principal: "agent:ada", Server: "bank", Tool: "refund", Arguments: json.RawMessage(`{"amount":` + amount + `}`)}
	for _, f := range change {
		f(call)
	}
	id, err := contract.Identify(call)
	if err != nil {
		t.Fatal(err)
	}
	begun, err := log.Begin(t.Context(), &store.BeginParams{Call: call, Identity: id, Contract: contract})
	if err != nil {
		t.Fatal(err)
	}
	return begun
}

func withStore(t *testing.T, db string, f func(log *store.Log)) {
	t.Helper()
	driver, err := sqlite.Open(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	log, err := store.Open(driver, nil)
	if err != nil {
		t.Fatal(err)
	}
	f(log)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// step is a command line, its exit code, and what it says.
type step struct {
	args []string
	code int
	want string
}

func doSteps(t *testing.T, db string, steps ...step) {
	t.Helper()
	for _, s := range steps {
		out, code := said(t, append([]string{"--db", db}, s.args...)...)
		if code != s.code || !strings.Contains(out, s.want) {
			t.Errorf("undolog %s: exit code %d, want %d; said %q, want in it %q", strings.Join(s.args, " "), code, s.code, out, s.want)
		}
	}
}

func TestDecide_secondSayIsToldOfTheFirst(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	id := asked(t, db, "10")[0]
	doSteps(t, db,
		step{[]string{"approvals"}, exitOK, id},
		step{[]string{"approve", id, "--by", "agent:ada"}, exitUsage, "user:NAME"},
		step{[]string{"approve", id, "--by", "user:bob"}, exitOK, "runs, once, until"},
		step{[]string{"approve", id, "--by", "user:eve"}, exitOK, "already approved by user:bob at"},
		step{[]string{"deny", id, "--by", "user:eve", "--reason", "no"}, exitConflict, "already approved by user:bob at"},
		step{[]string{"withdraw", id, "--by", "user:bob", "--reason", "wrong one"}, exitOK, "withdrawn"},
		step{[]string{"approvals"}, exitOK, "waits for approval"},
		step{[]string{"show", id}, exitOK, "wrong one"},
		step{[]string{"reopen", id, "--reason", "right after all"}, exitOK, "decided again until"},
		step{[]string{"extend", id, "--for", "48h"}, exitOK, "can be decided until"},
	)
}

func TestDecide_aDenialSaysWhy(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	id := asked(t, db, "10")[0]
	doSteps(t, db,
		step{[]string{"deny", id}, exitUsage, "a reason is missing: say why with --reason TEXT"},
		step{[]string{"deny", id, "--reason", "wrong account"}, exitOK, "is denied"},
		step{[]string{"approve", id}, exitConflict, "already denied by"},
		step{[]string{"approve", missing}, exitNotFound, `"undolog log"`},
	)
}

// Several calls are decided on as they were looked at: one that was edited meanwhile is left out.
func TestDecide_manyAtOnceNeedTheirDigests(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	ids := asked(t, db, "10", "20", "30")
	doSteps(t, db, step{[]string{"approve", ids[0], ids[1]}, exitUsage, "ID=DIGEST"})
	listed, _ := said(t, "--db", db, "approvals", "--digests")
	smaller := filepath.Join(t.TempDir(), "smaller.json")
	writeFile(t, smaller, `{"amount":5}`)
	doSteps(t, db, step{[]string{"edit", ids[1], "--arguments", smaller, "--reason", "half"}, exitOK, "needs approval as it is"})
	out, code := said(t, append([]string{"--db", db, "approve"}, strings.Fields(listed)...)...)
	if code == exitOK || strings.Count(out, "is approved") != 2 || !strings.Contains(out, "look at it again") {
		t.Errorf("approve of a list with a call that was edited since: exit code %d, said %q", code, out)
	}
}

func TestEdit_sendsWhatAPersonWrote(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	id := asked(t, db, "100")[0]
	file := filepath.Join(t.TempDir(), "arguments.json")
	writeFile(t, file, `{"amount": 40}`)
	doSteps(t, db,
		step{[]string{"edit", id, "--arguments", file}, exitUsage, "a reason is missing: say why with --reason TEXT"},
		step{[]string{"edit", id, "--arguments", filepath.Join(t.TempDir(), "none"), "--reason", "r"}, exitFailed, "no such file"},
		step{[]string{"edit", id, "--arguments", file, "--reason", "at most 40", "--approve"}, exitOK, "runs, once"},
		step{[]string{"show", id}, exitOK, `{"amount":40}`},
	)
	withStore(t, db, func(log *store.Log) {
		begun := beginRefund(t, log, "100")
		if begun.Claim == nil || string(begun.Record.Executed()) != `{"amount":40}` {
			t.Errorf("Begin of the edited call = %+v with %s, want a claim with the edited arguments", begun.Verdict, begun.Record.Executed())
		}
	})
}

// A call that ran is not made once more by editing another into it, and a script can tell that from a failure.
func TestEdit_intoACallThatRanIsAConflict(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	ids := asked(t, db, "10", "20")
	doSteps(t, db, step{[]string{"approve", ids[0]}, exitOK, "runs, once"})
	withStore(t, db, func(log *store.Log) {
		if begun := beginRefund(t, log, "10"); begun.Claim == nil {
			t.Fatalf("Begin of what is approved = %+v, want a claim", begun.Verdict)
		}
	})
	file := filepath.Join(t.TempDir(), "arguments.json")
	writeFile(t, file, `{"amount":10}`)
	doSteps(t, db, step{[]string{"edit", ids[1], "--arguments", file, "--reason", "the same"}, exitConflict, "it would run twice"})
}

func TestDecide_whoDecidesIsAUser(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	id := asked(t, db, "10")[0]
	for _, by := range []string{"ada", "agent:ada", "user:"} {
		doSteps(t, db,
			step{[]string{"deny", id, "--by", by, "--reason", "r"}, exitUsage, "user:NAME"},
			step{[]string{"edit", id, "--by", by, "--reason", "r"}, exitUsage, "user:NAME"},
			step{[]string{"grant", "give", "--effect", id, "--by", by, "--reason", "r"}, exitUsage, "user:NAME"},
			step{[]string{"grant", "revoke", missing, "--by", by}, exitUsage, "user:NAME"},
		)
	}
	doSteps(t, db, step{[]string{"withdraw", id, "--reason", " "}, exitUsage, "a reason is missing: say why with --reason TEXT"})
}

func TestGrant_standsForApprovals(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	id := asked(t, db, "10")[0]
	doSteps(t, db,
		step{[]string{"grant", "give", "--effect", id}, exitUsage, "--reason"},
		step{[]string{"grant", "give", "--server", "bank", "--tool", "refund", "--where", "args.amount <", "--reason", "r"}, exitUsage, "args.amount <"},
		step{[]string{"grant", "give", "--server", "bank", "--tool", "refund", "--where", "args.amount <= 20", "--reason", "shift"}, exitOK, "where args.amount <= 20"},
		step{[]string{"grant", "list"}, exitOK, "args.amount <= 20"},
	)
	begins := func(amount string, want effect.Action) {
		t.Helper()
		withStore(t, db, func(log *store.Log) {
			if got := beginRefund(t, log, amount).Verdict.Action; got != want {
				t.Errorf("Begin of %s = %s, want %s", amount, got, want)
			}
		})
	}
	begins("15", effect.ActInsert)
	begins("25", effect.ActRequest)
	out, _ := said(t, "--db", db, "grant", "list", "--json")
	var g effectjson.Grant
	if err := json.Unmarshal([]byte(out), &g); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	doSteps(t, db,
		step{[]string{"grant", "revoke", g.ID}, exitUsage, "say with --reason why the grant ends"},
		step{[]string{"grant", "revoke", g.ID, "--reason", "over"}, exitOK, "need approval again"},
		step{[]string{"grant", "revoke", g.ID, "--reason", "over"}, exitOK, "was revoked before, by"},
		step{[]string{"grant", "revoke", missing, "--reason", "over"}, exitNotFound, "grant list --all"},
		step{[]string{"grant", "list"}, exitOK, "no standing grant"},
	)
	begins("16", effect.ActRequest)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDurations_AreSaidInDaysAndWeeksToo(t *testing.T) {
	db := filepath.Join(t.TempDir(), "undolog.db")
	id := asked(t, db, "1")[0]
	lastsFor(t, db, 48*time.Hour, "extend", id, "--for", "2d")
	lastsFor(t, db, 168*time.Hour, "extend", id, "--for", "1w")
	lastsFor(t, db, 36*time.Hour, "grant", "give", "--effect", id, "--for", "1d12h", "--reason", "r")
	doSteps(t, db,
		step{[]string{"extend", id, "--for", "soon"}, exitUsage, "such as 90s, 10m, 8h, 2d or 1w"},
		step{[]string{"log", "--since", "1w"}, exitOK, id},
	)
}

var untilTime = regexp.MustCompile(`until (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)`)

// lastsFor runs a command line that says until when something holds, which is so long from now.
func lastsFor(t *testing.T, db string, d time.Duration, args ...string) {
	t.Helper()
	earliest := localTime(time.Now().Add(d))
	out, code := said(t, append([]string{"--db", db}, args...)...)
	latest := localTime(time.Now().Add(d))
	found := untilTime.FindStringSubmatch(out)
	if code != exitOK || found == nil || found[1] < earliest || found[1] > latest {
		t.Errorf("undolog %s: exit code %d, said %q, want a time from %s to %s", strings.Join(args, " "), code, out, earliest, latest)
	}
}

// One call of several without its digest would be approved as whatever it is by now, and one that cannot be read is
// told before any is decided on.
func TestDecide_severalCallsAreNamedWhole(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	ids := asked(t, db, "1", "2")
	digests, _ := said(t, "--db", db, "approvals", "--digests")
	named := strings.Fields(digests)
	doSteps(t, db,
		step{[]string{"approve", named[0], ids[0] + "="}, exitUsage, `"" is no digest`},
		step{[]string{"approve", named[0], ids[0] + "=b3:12"}, exitUsage, `"b3:12" is no digest`},
		step{[]string{"approvals"}, exitOK, "undecided"},
	)
	if out, _ := said(t, "--db", db, "approvals"); strings.Contains(out, "approved") {
		t.Errorf("a call was approved beside one that cannot be read:\n%s", out)
	}
	doSteps(t, db,
		step{[]string{"withdraw", ids[0], "--reason", "r"}, exitConflict, "deny it instead"},
		step{[]string{"approve", recordRead(t, filepath.Join(t.TempDir(), "other.db"))}, exitNotFound, "undolog log"},
	)
}
