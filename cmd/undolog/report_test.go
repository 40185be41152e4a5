package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// The same server under two command lines is one server in the policy, each of its tools has one rule, and the
// rule holds under a third.
func TestReport_startsAPolicyByTheServersOwnName(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	withStore(t, db, func(log *store.Log) {
		for server, tools := range map[string][]string{
			"bank-0a1b2c3d": {"refund", "charge"}, "bank-deadbeef": {"refund", "close"}, "bank-books": {"list"},
		} {
			log.RecordRead(&effect.Record{Server: server, Tool: tools[0], Rule: effect.RuleNone, State: effect.StateCommitted})
			for _, name := range tools {
				learned := &store.Tool{
					Tenant: effect.DefaultTenant, Server: server, Name: name, Digest: effect.Digest{1}, Definition: json.RawMessage(`{"name":"` + name + `","inputSchema":{"type":"object"}}`),
				}
				if _, err := log.LearnTool(t.Context(), learned); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	file, code := said(t, "--db", db, "report", "--policy")
	policy, err := effect.ParsePolicy("undolog.yaml", []byte(file))
	if err != nil || code != exitOK {
		t.Fatalf("exit code %d: %v\n%s", code, err, file)
	}
	if strings.Contains(file, "0a1b2c3d") || strings.Count(file, `tool: "refund"`) != 1 || !strings.Contains(file, `server: "bank-books*"`) {
		t.Errorf("a name with a hash, or a tool twice, or a name cut short:\n%s", file)
	}
	for _, tool := range []string{"refund", "charge", "close"} {
		c, err := policy.For(&effect.Call{Server: "bank-12345678", Tool: tool}, false)
		if err != nil || strings.Contains(c.Source, "no rule") {
			t.Errorf("%s is governed by %v, %v", tool, c, err)
		}
	}
}
