package main

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// The retention of the policy holds for a log that no gateway has open, to its end and for every tenant.
func TestReap_prunesByTheRetentionOfThePolicy(t *testing.T) {
	dir := t.TempDir()
	db, policy := filepath.Join(dir, "log.db"), filepath.Join(dir, "undolog.yaml")
	writeFile(t, policy, "version: 1\nretention: 1ms\ntools: []\n")
	id := asked(t, db, "10")[0]
	withStore(t, db, func(log *store.Log) {
		for n := range 6000 {
			log.RecordRead(&effect.Record{Tenant: "tenant-" + strconv.Itoa(n%2), Server: "files", Tool: "read_file", Rule: effect.RuleNone, State: effect.StateCommitted})
		}
	})
	doSteps(t, db,
		step{[]string{"deny", id, "--reason", "no"}, exitOK, "is denied"},
		step{[]string{"reap"}, exitOK, "in doubt 0\n"},
		step{[]string{"show", id}, exitOK, `{"amount":10}`},
		step{[]string{"reap", "--policy", policy}, exitOK, "pruned 6001 that were kept for longer than 1ms"},
		step{[]string{"show", id}, exitOK, "(pruned)"},
		step{[]string{"reap", "--policy", policy, "--json"}, exitOK, `"pruned":0`},
	)
}
