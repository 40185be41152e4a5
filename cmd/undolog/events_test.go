package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

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
