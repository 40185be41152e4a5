package main

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Calls that were refused before there was an effect are found again, and a flood of them is one line more.
func TestEvents_ListsRefusedCalls(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	withStore(t, db, func(log *store.Log) {
		log.Note(effect.Event{Kind: effect.EventReplayed, Server: "bank", Tool: "refund", Principal: "agent:ada"})
		log.Note(effect.Event{Kind: effect.EventRefused, Server: "bank", Tool: "refund", Principal: "agent:ada", Detail: json.RawMessage(`{"reason":"not today"}`)})
		log.Note(effect.Event{Kind: effect.EventRefused, Server: "bank", Tool: "refund", Principal: "agent:ada", Detail: json.RawMessage(`{"reason":"not today","more":48}`)})
		log.Note(effect.Event{Kind: effect.EventStopped, Principal: "agent:ada", Detail: json.RawMessage(`{"by":"acme/no-wipe"}`)})
	})
	doSteps(t, db,
		step{[]string{"events", "--kind", "refused"}, exitOK, "not today"},
		step{[]string{"events", "--kind", "refused,stopped"}, exitOK, "acme/no-wipe"},
		step{[]string{"events", "--kind", "refuse"}, exitUsage, "want some of refused, stopped"},
		step{[]string{"events", "--json", "--tool", "refund", "--limit", "1"}, exitOK, `"more":48`},
		step{[]string{"events", "--tool", "wire"}, exitOK, "tenant default has no such event"},
		step{[]string{"report", "--json"}, exitOK, `"refused":49`},
	)
	if out, _ := said(t, "--db", db, "events", "--kind", "refused", "--since", "1h"); strings.Contains(out, "replayed") || strings.Count(out, "refund") != 2 {
		t.Errorf("events --kind refused says\n%s", out)
	}
	if out, _ := said(t, "--db", db, "events", "--json", "--limit", "1"); strings.Count(out, "\n") != 1 || !strings.Contains(out, "acme/no-wipe") {
		t.Errorf("the newest event is\n%s", out)
	}
}

// Events are written a moment after they happened, and not in that order.
func TestEvents_AreInTheOrderOfTheirTimes(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	withStore(t, db, func(log *store.Log) {
		for _, minute := range []int{2, 3, 1} {
			log.Note(effect.Event{At: at.Add(time.Duration(minute) * time.Minute), Kind: effect.EventRefused, Tool: strconv.Itoa(minute)})
		}
	})
	for limit, want := range map[string]string{"0": "1 2 3 ", "2": "2 3 "} {
		out, _ := said(t, "--db", db, "events", "--json", "--limit", limit)
		got := ""
		for line := range strings.Lines(out) {
			var ev struct {
				Tool string `json:"tool"`
			}
			if err := json.Unmarshal([]byte(line), &ev); err != nil {
				t.Fatal(err)
			}
			got += ev.Tool + " "
		}
		if got != want {
			t.Errorf("--limit %s lists %s, want %s", limit, got, want)
		}
	}
}

// A flood of replays is counted by its number in report and show, not by its events.
func TestReplays_areCountedByTheirNumber(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	id := asked(t, db, "10")[0]
	withStore(t, db, func(log *store.Log) {
		for _, detail := range []string{"", `{"more":48}`, `{"more":1}`} {
			log.Note(effect.Event{Effect: id, Kind: effect.EventReplayed, Server: "bank", Tool: "refund", Detail: json.RawMessage(detail)})
		}
	})
	doSteps(t, db, step{[]string{"show", id}, exitOK, "50 times, last "})
	out, _ := said(t, "--db", db, "report", "--json")
	if !strings.Contains(out, `"replayed":50`) {
		t.Errorf("report says %s, want 50 replays", out)
	}
}
