package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectchain"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/store"
)

// charge is the tool that the calls are of, as its server describes it.
var charge = json.RawMessage(`{"name":"charge","inputSchema":{"type":"object","required":["account","amount"],"additionalProperties":false,"properties":{
	"account":{"type":"string","minLength":1,"maxLength":64},"amount":{"type":"integer","minimum":1},"reference":{"type":"string"}}}}`)

// rulesOfAll is a policy of 200 rules: some with a condition on the call that is false, most of them of other
// tools, the last one the call's.
func rulesOfAll() (*effect.Policy, error) {
	const rules, conditions = 200, 20
	var text strings.Builder
	text.WriteString("version: 1\ntools:\n")
	for i := range rules - 1 {
		if i < conditions {
			fmt.Fprintf(&text, "  - {tool: 'c*', when: 'args.amount > %d && args.account.startsWith(\"DE\")', deny: no}\n", 1000+i)
			continue
		}
		fmt.Fprintf(&text, "  - {tool: 'other_%d_*', tier: read}\n", i)
	}
	text.WriteString("  - {tool: charge, tier: irreversible, approve: args.amount > 5000000, repeat: run}\n")
	return effect.ParsePolicy("bench.yaml", []byte(text.String()))
}

// policies compares the request phase under a policy of 200 rules, with the arguments checked against their
// schema, with the one without a policy.
func (b *bench) policies(ctx context.Context) error {
	policy, err := rulesOfAll()
	if err != nil {
		return err
	}
	digest, err := effect.DigestOf(charge)
	if err != nil {
		return err
	}
	log, err := store.Open(discard{tools: []store.Tool{{Name: "charge", Server: "payments", Definition: charge, Digest: digest}}}, nil)
	if err != nil {
		return err
	}
	with, err := phaseOf(log, policy)
	if err != nil {
		return err
	}
	without, err := phaseOf(log, nil)
	if err != nil {
		return err
	}
	laps := []lap{with.laps(ctx)[requestPhase], without.laps(ctx)[requestPhase]}
	if err := byTurns(ctx, laps, b.duration); err != nil {
		return err
	}
	ruled, bare := laps[0].median(), laps[1].median()
	b.table.add(row{
		what: "request phase, 200 rules, 20 conditions, schema of 1 KiB, median", figure: micros(ruled), baseline: micros(bare) + " without",
		ratio: ratio(ruled, bare), goal: goal("+"+micros(ruled-bare)+", ≤ 70 µs", ruled-bare <= 70*time.Microsecond),
	})
	return log.Close()
}

// phaseOf are calls under a policy.
func phaseOf(log *store.Log, policy *effect.Policy) (*passes, error) {
	ei := effectinterceptor.New(log, &effectinterceptor.Options{Delivery: true, Policy: policy})
	c, err := effectchain.New(ei, &effectchain.Options{Server: "payments"})
	if err != nil {
		return nil, err
	}
	return &passes{chain: c, ei: ei}, nil
}
