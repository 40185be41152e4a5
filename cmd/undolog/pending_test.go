package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Each effect that waits for somebody is listed with what to do for it.
func TestPending_saysWhatToDo(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	asked(t, db, "1")
	withStore(t, db, func(log *store.Log) {
		leave := func(tool string, out effect.Outcome) {
			t.Helper()
			contract := effect.DefaultContract(nil, false)
			call := &effect.Call{Principal: "agent:ada", Server: "bank", Tool: tool}
			id, err := contract.Identify(call)
			if err != nil {
				t.Fatal(err)
			}
			begun, err := log.Begin(t.Context(), &store.BeginParams{Call: call, Identity: id, Contract: contract})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := log.Settle(t.Context(), *begun.Claim, contract, out); err != nil {
				t.Fatal(err)
			}
		}
		waits := func(body string) effect.Outcome {
			return effect.Outcome{Kind: effect.OutcomeWaiting, Continuation: "x", Answer: effect.Answer{Kind: effect.AnswerResult, Body: json.RawMessage(body)}}
		}
		leave("lost", effect.Outcome{Kind: effect.OutcomeLost, Reason: "the stream broke"})
		leave("task", waits(`{"task":{"taskId":"x"}}`))
		leave("round", waits(`{"resultType":"input_required","requestState":"x"}`))
		leave("done", effect.Outcome{Kind: effect.OutcomeUnsent})
	})
	text, code := said(t, "pending", "--db", db)
	for _, want := range []string{
		`awaiting_approval +bank +refund .* undolog approve or deny, until `,
		`in_doubt +bank +lost .* look at the target, then undolog resolve`,
		`waiting +bank +task .* its task is followed by the gateway`,
		`waiting +bank +round .* its agent answers what the tool asks`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("pending says nothing like %q:\n%s", want, text)
		}
	}
	policy := filepath.Join(t.TempDir(), "undolog.yaml")
	writeFile(t, policy, `{version: 1, tools: [{tool: lost, tier: irreversible, probe: {tool: look, verdict: '"unknown"'}}, {tool: look, tier: read}]}`)
	probed, _ := said(t, "pending", "--db", db, "--policy", policy)
	if want := `in_doubt +bank +lost .* undolog resolve --probe, which asks bank`; !regexp.MustCompile(want).MatchString(probed) {
		t.Errorf("pending --policy says nothing like %q:\n%s", want, probed)
	}
	if code != exitOK || regexp.MustCompile(`bank +done`).MatchString(text) {
		t.Errorf("pending exits with %d:\n%s", code, text)
	}
}

// What waits is listed for every tenant at once, and who is shown a part of it is told so.
func TestPending_ofEveryTenantAndOfManyCalls(t *testing.T) {
	db := filepath.Join(t.TempDir(), "log.db")
	asked(t, db, "1", "2", "3")
	withStore(t, db, func(log *store.Log) {
		beginRefund(t, log, "4", func(c *effect.Call) { c.Tenant = "acme" })
		beginRefund(t, log, "5", func(c *effect.Call) { c.Tenant, c.Server = "acme", "warehouse" })
	})
	for _, command := range []string{"pending", "approvals"} {
		doSteps(t, db,
			step{[]string{command, "--all-tenants", "--tenant", "acme"}, exitUsage, "cannot both be meant"},
			step{[]string{command, "--limit", "0"}, exitUsage, "want 1 to"},
			step{[]string{command, "--limit", "9223372036854775807"}, exitUsage, "want 1 to"},
			step{[]string{command, "--limit", "2"}, exitOK, "showing the newest 2 of more; narrow with --server, --tool or --tenant, or say --limit N"},
			step{[]string{command, "--all-tenants", "--tool", "wire"}, exitOK, "nothing of any tenant by such a tool"},
			step{[]string{command, "--all-tenants"}, exitOK, "TENANT"},
		)
		for amounts, args := range map[string][]string{
			"321": {command}, "32": {command, "--limit", "2"}, "54": {command, "--tenant", "acme"}, "54321": {command, "--all-tenants"},
			"5432": {command, "--all-tenants", "--limit", "4"}, "5": {command, "--all-tenants", "--server", "warehouse"},
		} {
			out, _ := said(t, append([]string{"--db", db}, args...)...)
			got := ""
			for _, found := range regexp.MustCompile(`"amount":(\d)`).FindAllStringSubmatch(out, -1) {
				got += found[1]
			}
			if cut := strings.Contains(out, "of more"); got != amounts || cut != slices.Contains(args, "--limit") {
				t.Errorf("%v lists %s, want %s:\n%s", args, got, amounts, out)
			}
		}
	}
	doSteps(t, db, step{[]string{"approvals", "--digests", "--all-tenants"}, exitUsage, "without --all-tenants"})
}
