package effect_test

import (
	"encoding/json"
	"testing"

	"github.com/undolog/undolog/effect"
)

// The argument into which our key is put is no part of what a call is known by; a key that the caller puts
// there is the caller's.
func TestIdentify_injectedArgument(t *testing.T) {
	contract := func(in effect.InjectPlace) *effect.Contract {
		return &effect.Contract{Inject: effect.Inject{Into: in, Name: "request_id"}}
	}
	identify := func(c *effect.Contract, arguments string) *effect.Identity {
		t.Helper()
		id, err := c.Identify(&effect.Call{Principal: "agent:a", Server: "bank", Tool: "pay", Arguments: json.RawMessage(arguments)})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	without := identify(contract(effect.InjectArgument), `{"to":"alice"}`)
	if null := identify(contract(effect.InjectArgument), `{"to":"alice","request_id":null}`); null.Signature != without.Signature {
		t.Error("a null in the place of the key makes another call")
	}
	given := identify(contract(effect.InjectArgument), `{"to":"alice","request_id":"k-1"}`)
	if given.Rule != effect.RuleKey || given.Scope != "k-1" || given.Arguments != without.Arguments {
		t.Errorf("rule %s, scope %q, equal arguments %t; want the caller's key and the same arguments", given.Rule, given.Scope, given.Arguments == without.Arguments)
	}
	wellKnown := identify(contract(effect.InjectArgument), `{"to":"alice","idempotencyKey":"k-2"}`)
	if wellKnown.Scope != "k-2" || wellKnown.Arguments != without.Arguments {
		t.Errorf("scope %q; a key under a well-known name still counts", wellKnown.Scope)
	}
	none := contract(effect.InjectArgument)
	none.NoKeyArgument = true
	if id := identify(none, `{"to":"alice","request_id":"k-1"}`); id.Signature != without.Signature {
		t.Error("with key: none the caller's value must not count at all")
	}
	meta := identify(contract(effect.InjectMeta), `{"to":"alice","request_id":"k-1"}`)
	if meta.Rule != effect.RuleWindow || meta.Arguments == without.Arguments {
		t.Error("an argument of that name is an argument like any other where the key goes into _meta")
	}
}

func TestParsePolicy_keysGoWhereNothingElseStands(t *testing.T) {
	parse := func(inject string) error {
		_, err := effect.ParsePolicy("undolog.yaml", []byte("version: 1\ntools:\n  - {tool: pay, inject: {"+inject+"}}\n"))
		return err
	}
	for _, taken := range []string{
		"header: Authorization", "header: MCP-Session-Id", "header: content-length", "meta: progressToken", "meta: dev.undolog/effect",
		"meta: io.modelcontextprotocol/protocolVersion",
	} {
		if parse(taken) == nil {
			t.Errorf("inject: {%s} was accepted", taken)
		}
	}
	for _, free := range []string{"header: Idempotency-Key", "meta: example.com/key", "argument: request_id"} {
		if err := parse(free); err != nil {
			t.Errorf("inject: {%s}: %v", free, err)
		}
	}
}
