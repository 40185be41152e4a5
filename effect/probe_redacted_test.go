package effect_test

import (
	"encoding/json"
	"testing"

	"github.com/undolog/undolog/effect"
)

// A probe of a call whose secrets were not kept must not take "nothing equals [redacted]" for "not applied".
func TestProbe_cannotTellWhatItNeedsARedactedValueFor(t *testing.T) {
	call := func(arguments string) *effect.Call {
		return &effect.Call{Server: "bank", Tool: "pay", Key: "k", Arguments: json.RawMessage(arguments)}
	}
	const verdict = `result.structuredContent.ids.exists(i, i == args.auth.token) ? "applied" : "not_applied"`
	p, err := effect.ParseProbe("", "list", `{"q": args.to}`, verdict)
	if err != nil {
		t.Fatal(err)
	}
	answer := json.RawMessage(`{"structuredContent":{"ids":["other"]}}`)
	if v, _, err := p.Verdict(call(`{"to":"alice","auth":{"token":"t-1"}}`), answer, false); v != effect.ProbeNotApplied || err != nil {
		t.Errorf("of the call itself: %s, %v", v, err)
	}
	if v, _, err := p.Verdict(call(`{"to":"alice","auth":{"token":"[redacted]"}}`), answer, false); v != effect.ProbeUnknown || err == nil {
		t.Errorf("of the call as it was kept: %s, %v; want that it cannot be told", v, err)
	}
	if _, err := p.Arguments(call(`{"to":"alice","auth":"[redacted]"}`)); err != nil {
		t.Errorf("arguments that need nothing redacted: %v", err)
	}
	for _, arguments := range []string{`{"to":"[redacted]"}`, `{"to":["x","[redacted]"]}`, `{"to":"with [redacted]"}`} {
		if out, err := p.Arguments(call(arguments)); err == nil {
			t.Errorf("of %s: %s, want an error", arguments, out)
		}
	}
}
