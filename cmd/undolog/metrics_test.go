package main

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/store"
)

// What waits is counted over all tenants, and not anew for each who asks.
func TestMetrics_countWhatWaits(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	asked(t, db, "1", "2", "3")
	withStore(t, db, func(log *store.Log) {
		s := &standing{log: log}
		beginRefund(t, log, "4", func(c *effect.Call) { c.Tenant = "acme" })
		lost := effect.DefaultContract(nil, false)
		call := &effect.Call{Tenant: "acme", Principal: "agent:ada", Server: "bank", Tool: "lost"}
		id, err := lost.Identify(call)
		if err != nil {
			t.Fatal(err)
		}
		begun, err := log.Begin(t.Context(), &store.BeginParams{Call: call, Identity: id, Contract: lost})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Settle(t.Context(), *begun.Claim, lost, effect.Outcome{Kind: effect.OutcomeLost}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var out bytes.Buffer
			writeMetrics(&out, s.metrics(t.Context()))
			if text := out.String(); !strings.Contains(text, "undolog_approvals_waiting 4\n") || !strings.Contains(text, "undolog_effects_in_doubt 1\n") {
				t.Errorf("counted:\n%s", text)
			}
			beginRefund(t, log, "5")
		}
	})
}

// Prometheus wants the help and the type of a metric once, before its values, and counters named _total.
func TestMetrics_areInPrometheusFormat(t *testing.T) {
	var out bytes.Buffer
	ei := effectinterceptor.New(nil, nil)
	writeMetrics(&out, append([]metric{programMetric()}, callMetrics(ei.Counts())...))
	described := map[string]string{}
	value := regexp.MustCompile(`^([a-z_]+)(\{[a-z_]+="[^"\\\n]*"\})? [0-9]+$`)
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(name, " ")
			if described[name] != "" || (kind == counter) != strings.HasSuffix(name, "_total") {
				t.Errorf("%s is described twice, or is a %s of that name", name, kind)
			}
			described[name] = kind
			continue
		}
		if strings.HasPrefix(line, "# HELP ") {
			continue
		}
		if found := value.FindStringSubmatch(line); found == nil || described[found[1]] == "" {
			t.Errorf("no value, or one of a metric that is not described: %s", line)
		}
	}
	if len(described) != 3 {
		t.Errorf("described are %v", described)
	}
}
