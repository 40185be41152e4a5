package behavior_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/behavior"
	"github.com/undolog/undolog/interceptors"
)

// host hosts one interceptor of the behavior, in both phases.
func host(t *testing.T, typ, name string) *interceptors.Server {
	t.Helper()
	f := &conformance.Fixture{Interceptors: []conformance.Interceptor{
		{Name: "t/x", Type: typ, Behavior: name, Events: []string{"*"}, Phases: "both"},
	}}
	h, err := behavior.NewHost(&behavior.HostParams{Fixture: f, Log: new(behavior.Log)})
	if err != nil {
		t.Fatalf("NewHost: %v", err)
	}
	return h.Server
}

func invoke(t *testing.T, s *interceptors.Server, phase interceptors.Phase, session, payload string) *interceptors.Result {
	t.Helper()
	res, err := s.Invoke(t.Context(), &interceptors.InvokeParams{Name: "t/x", Event: "tools/call", Phase: phase,
		Payload: json.RawMessage(payload), Context: &interceptors.Context{SessionID: session}})
	if err != nil {
		t.Fatalf("Invoke: %v", err)
	}
	return res
}

// secrets are made-up credentials of every format, in two parts so that nothing takes them for real.
var secrets = []string{
	"sk_" + "live_" + "aaaaBBBB1111cccc", "pk_" + "live_" + "aaaaBBBB1111cccc", "gh" + "p_" + "aaaaBBBB1111cccc2222",
	"gh" + "o_" + "aaaaBBBB1111cccc2222", "AK" + "IA" + "ABCDEFGH12345678", "xo" + "xb-1234567890", "xo" + "xr-1234567890",
}

func TestRedactor_EveryFormat(t *testing.T) {
	s := host(t, "mutation", "secretless-redactor")
	for _, secret := range secrets {
		res := invoke(t, s, interceptors.PhaseRequest, "s", `{"name":"x","arguments":{"a":["`+secret+`, `+secret+`"],"n":9007199254740993}}`)
		if !res.Modified || strings.Contains(string(res.Payload), secret) || !strings.Contains(string(res.Payload), "9007199254740993") {
			t.Errorf("%s: modified %v, payload %s", secret, res.Modified, res.Payload)
		}
	}
	for _, harmless := range []string{"sk_" + "live_" + "short", "AK" + "IA123", "nothing at all"} {
		if res := invoke(t, s, interceptors.PhaseRequest, "s", `{"name":"x","arguments":{"a":"`+harmless+`"}}`); res.Modified {
			t.Errorf("%s was redacted: %s", harmless, res.Payload)
		}
	}
}

func TestGuard_EveryFormat(t *testing.T) {
	for i, secret := range secrets {
		s := host(t, "validation", "cross-boundary-guard")
		session := string(rune('a' + i))
		invoke(t, s, interceptors.PhaseRequest, session, `{"name":"read_file","arguments":{}}`)
		invoke(t, s, interceptors.PhaseResponse, session, `{"content":[{"type":"text","text":"\u0041=`+secret+`"}]}`)
		if res := invoke(t, s, interceptors.PhaseRequest, session, `{"name":"write_file","arguments":{"c":"`+secret+`"}}`); !res.Valid {
			t.Errorf("%s may not go back to where it is from", secret)
		}
		res := invoke(t, s, interceptors.PhaseRequest, session, `{"name":"write_query","arguments":{"c":"`+secret+`"}}`)
		if res.Valid || strings.Contains(res.Messages[0].Message, secret) {
			t.Errorf("%s: valid %v, messages %v", secret, res.Valid, res.Messages)
		}
		if res := invoke(t, s, interceptors.PhaseRequest, session+"2", `{"name":"write_query","arguments":{"c":"`+secret+`"}}`); !res.Valid {
			t.Errorf("%s is held against another session", secret)
		}
	}
}

func TestGuard_ResourcesAreTheirAuthority(t *testing.T) {
	s := host(t, "validation", "cross-boundary-guard")
	secret := secrets[0]
	invoke(t, s, interceptors.PhaseRequest, "s", `{"uri":"https://a.example/x"}`)
	invoke(t, s, interceptors.PhaseResponse, "s", `{"contents":[{"text":"`+secret+`"}]}`)
	if res := invoke(t, s, interceptors.PhaseRequest, "s", `{"uri":"https://a.example/`+secret+`"}`); !res.Valid {
		t.Error("it may not go back to where it is from")
	}
	if res := invoke(t, s, interceptors.PhaseRequest, "s", `{"uri":"https://b.example/`+secret+`"}`); res.Valid {
		t.Error("it may go to another authority")
	}
}

func TestGuard_AnAnswerInTwoPartsIsOfOneServer(t *testing.T) {
	s := host(t, "validation", "cross-boundary-guard")
	secret := secrets[0]
	invoke(t, s, interceptors.PhaseRequest, "s", `{"name":"read_file","arguments":{}}`)
	invoke(t, s, interceptors.PhaseResponse, "s", `{"content":[]}`)
	invoke(t, s, interceptors.PhaseResponse, "s", `{"content":[{"type":"text","text":"`+secret+`"}]}`)
	if res := invoke(t, s, interceptors.PhaseRequest, "s", `{"name":"write_file","arguments":{"c":"`+secret+`"}}`); !res.Valid {
		t.Error("it may not go back to where it is from")
	}
	if res := invoke(t, s, interceptors.PhaseRequest, "s", `{"name":"write_query","arguments":{"c":"`+secret+`"}}`); res.Valid {
		t.Error("it may go to another server")
	}
}

func TestUppercase_IsThatOfUnicode(t *testing.T) {
	s := host(t, "mutation", "uppercase-note")
	res := invoke(t, s, interceptors.PhaseRequest, "", `{"arguments":{"note":"straße"}}`)
	if want := `{"arguments":{"note":"STRASSE"}}`; string(res.Payload) != want {
		t.Errorf("payload %s, want %s", res.Payload, want)
	}
	s = host(t, "validation", "require-uppercase-note")
	if res := invoke(t, s, interceptors.PhaseRequest, "", `{"arguments":{"note":"ß"}}`); res.Valid {
		t.Error("a letter whose upper case is two letters counts as upper case")
	}
}
