package effectinterceptor_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/internal/splice"
)

const redacting = `version: 1
tools:
  - tool: login
    tier: irreversible
    approve: never
    redact: [password, /cards/*/number]
    redact_result: [session]
  - tool: look
    tier: read
    redact: [password]
`

const (
	canary = "canary-7f3a91c2"
	token  = "issued-55d0aa17"
	login  = `{"name":"login","arguments":{"user":"bob","auth":{"password":"` + canary + `"},"cards":[{"number":4111222233334444}],"note":"it is ` + canary + `"}}`
)

// echoes is a result that gives back every secret it can, encoded one way and another.
func echoes() string {
	inner, err := json.Marshal(map[string]any{"you sent": canary, "card": 4111222233334444, "session": token})
	if err != nil {
		panic(err)
	}
	text, err := json.Marshal(string(inner) + " " + base64.StdEncoding.EncodeToString([]byte("bob:"+canary)))
	if err != nil {
		panic(err)
	}
	return `{"content":[{"type":"text","text":` + string(text) + `}],"structuredContent":{"session":"` + token + `","` + canary + `":true}}`
}

// secretsIn are the secrets that are still there in what was written.
func secretsIn(text []byte) (found []string) {
	for _, s := range []string{canary, token, "4111222233334444"} {
		forms := []string{s}
		for shift := range 3 {
			coded := base64.StdEncoding.EncodeToString(append(make([]byte, shift), s...))
			forms = append(forms, coded[4:len(coded)-4])
		}
		for _, form := range forms {
			if bytes.Contains(text, []byte(form)) {
				found = append(found, form)
			}
		}
	}
	return found
}

// files are all bytes of the log.
func (w *world) files() []byte {
	w.t.Helper()
	paths, err := filepath.Glob(w.path + "*")
	if err != nil {
		w.t.Fatal(err)
	}
	var all []byte
	for _, path := range paths {
		file, err := os.ReadFile(path)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, file...)
	}
	return all
}

func TestRedact_TheLogHasNoSecrets(t *testing.T) {
	for name, end := range map[string]effectinterceptor.End{
		"a result":             answered(echoes()),
		"a result that failed": answered(`{"isError":true,"content":[{"type":"text","text":"wrong password ` + canary + `"}]}`),
		"an error":             failed(`{"code":-32000,"message":"no such user with ` + canary + `","data":{"session":"` + token + `","tried":["` + canary + `"]}}`),
		"a lost answer":        {Kind: effect.OutcomeLost, Reason: "panic: cannot log in with " + canary},
		"never sent":           {Kind: effect.OutcomeUnsent, Reason: "stopped: " + canary},
		"a question":           answered(`{"resultType":"input_required","requestState":"for ` + canary + `"}`),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, policy(redacting))
			c := w.alice().with(exchange("X"))
			sent := c.mustClaim(login)
			if !strings.Contains(string(sent.payload), canary) || !strings.Contains(string(sent.payload), "4111222233334444") {
				t.Errorf("sent %s, want the arguments as they came", sent.payload)
			}
			c.settled(end)
			if end.Result != nil {
				if got := c.answer(string(end.Result)); !bytes.Contains(got, []byte(canary)) {
					t.Errorf("answered %s, want the result as it came", got)
				}
			}
			w.ei.Delivered("X", w.clock.Now(), true)
			w.ei.Stopped(effectinterceptor.Stop{Event: "tools/call", By: "other", Reason: "validator saw " + canary})
			w.shut()
			if found := secretsIn(w.files()); found != nil {
				t.Errorf("the log has %q", found)
			}
		})
	}
}

func TestRedact_WhatIsKept(t *testing.T) {
	w := newWorld(t, policy(redacting))
	done := w.alice().with(exchange("X")).run(login, `{"structuredContent":{"session":"`+token+`","n":1}}`)
	r := w.wantState(done.id, effect.StateCommitted)
	const want = `{"user":"bob","auth":{"password":"[redacted]"},"cards":[{"number":"[redacted]"}],"note":"it is [redacted]"}`
	if diff := cmp.Diff(want, string(r.Arguments)); diff != "" {
		t.Errorf("arguments (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(`{"structuredContent":{"session":"[redacted]","n":1}}`, string(r.Answer.Body)); diff != "" {
		t.Errorf("answer (-want +got)\n%s", diff)
	}
	original, err := effect.DigestOf(splice.Get([]byte(login), "arguments"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Complete != original {
		t.Error("the digest is not of the arguments that were sent")
	}
}

// Another secret is another call; the same one is answered from the record, and is told what it is.
func TestRedact_IdentityIsOfTheOriginal(t *testing.T) {
	w := newWorld(t, policy(strings.Replace(redacting, "approve: never", "approve: never\n    repeat: replay", 1)))
	c := w.alice().with(exchange("X"))
	c.mustClaim(login)
	c.settled(answered(`{"structuredContent":{"session":"` + token + `"}}`))
	w.alice().with(exchange("Y")).mustClaim(strings.ReplaceAll(login, canary, "another-secret"))
	w.alice().with(exchange("Z")).mustClaim(strings.ReplaceAll(login, canary, effect.Redacted))
	answer := w.alice().with(exchange("V")).mustRespond(login)
	if got, _ := splice.Text(splice.Get(answer.Result, "structuredContent", "session")); got != effect.Redacted {
		t.Errorf("replayed %s, want what was kept", answer.Result)
	}
	if string(splice.Get(answer.Info, "dev.undolog/effect", "redacted")) != "true" ||
		string(splice.Get(answer.Result, "_meta", "dev.undolog/effect", "redacted")) != "true" {
		t.Errorf("nothing says that the answer is redacted: %s, %s", answer.Info, answer.Result)
	}
}

func TestRedact_Reads(t *testing.T) {
	w := newWorld(t, policy(redacting))
	c := w.alice().with(exchange("X"))
	if _, err := c.call(`{"name":"look","arguments":{"password":"` + canary + `"}}`); err != nil {
		t.Fatal(err)
	}
	c.settled(answered(`{"content":[{"type":"text","text":"you are ` + canary + `"}]}`))
	w.shut()
	if found := secretsIn(w.files()); found != nil {
		t.Errorf("the log has %q", found)
	}
	w.open()
	if r := w.only(); string(r.Arguments) != `{"password":"[redacted]"}` {
		t.Errorf("arguments %s", r.Arguments)
	}
}

// A question's state is recognised by what was kept of it.
func TestRedact_RoundsGoOn(t *testing.T) {
	w := newWorld(t, policy(redacting))
	c := w.alice().with(exchange("X"))
	first := c.mustClaim(login)
	c.settled(answered(`{"resultType":"input_required","requestState":"for ` + canary + `"}`))
	round := strings.TrimSuffix(login, "}") + `,"requestState":"for ` + canary + `","inputResponses":{}}`
	second := w.alice().with(exchange("Y"))
	if next := second.mustClaim(round); next.id != first.id || next.attempt != 1 {
		t.Errorf("effect %s attempt %d, want %s goes on", next.id, next.attempt, first.id)
	}
	second.settled(answered(`{"resultType":"input_required","requestState":"more"}`))
	w.alice().with(exchange("Z")).mustBlock(strings.Replace(round, "for ", "against ", 1))
}

// People decide about the call as it is kept, and what runs is the call as it was sent.
func TestRedact_ApprovedCallsRunWithTheirSecrets(t *testing.T) {
	for name, c := range map[string]struct{ edit, note string }{
		"as it was asked about": {"", "it is " + canary},
		"edited":                {`"note":"it is [redacted]"`, "changed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, policy(strings.Replace(redacting, "approve: never", "approve: always", 1)))
			w.alice().with(exchange("X")).mustBlock(login)
			asked := w.only()
			if found := secretsIn(asked.Executed()); found != nil {
				t.Errorf("people are shown %q", found)
			}
			decision := effect.Decision{Kind: effect.DecideApprove, By: "user:carol", Request: asked.Approval.ID}
			if c.edit != "" {
				_, err := w.decide(asked.ID, effect.Decision{Kind: effect.DecideEdit, Reason: "another password", Arguments: json.RawMessage(strings.Replace(string(asked.Arguments), effect.Redacted, "typed-by-carol", 1))})
				if _, refused := errors.AsType[*effect.InvalidError](err); !refused {
					t.Errorf("a secret that a person types: %v, want it refused, since it would be kept", err)
				}
				edited := strings.Replace(string(asked.Arguments), c.edit, `"note":"changed"`, 1)
				w.mustDecide(asked.ID, effect.Decision{Kind: effect.DecideEdit, By: "user:carol", Reason: "no secrets in notes", Request: asked.Approval.ID, Arguments: json.RawMessage(edited)})
			}
			w.mustDecide(asked.ID, decision)
			done := w.alice().with(exchange("Y")).mustClaim(login)
			sent := splice.Get(done.payload, "arguments")
			want, err := splice.Set(splice.Get([]byte(login), "arguments"), splice.Quote(c.note), "note")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(sent)); diff != "" {
				t.Errorf("sent (-want +got)\n%s", diff)
			}
			w.shut()
			if found := secretsIn(w.files()); found != nil {
				t.Errorf("the log has %q", found)
			}
		})
	}
}

func TestVault_LogsAreWithoutSecrets(t *testing.T) {
	vault := effectinterceptor.NewVault()
	w := newWorld(t, policy(redacting), func(w *world) { w.opts.Vault = vault })
	var out bytes.Buffer
	logger := slog.New(vault.Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	c := w.alice().with(exchange("X"))
	c.mustClaim(login)
	c.settled(answered(echoes()))
	logger.With("line", "with "+canary).WithGroup("g").ErrorContext(context.Background(), "said "+canary,
		slog.Any("error", os.NewSyscallError(canary, os.ErrInvalid)), slog.Any("tail", []string{"a", token}),
		slog.Group("in", slog.Int("card", 1), slog.String("text", `"4111222233334444"`)), slog.Any("value", json.RawMessage(login)))
	if found := secretsIn(out.Bytes()); found != nil || !strings.Contains(out.String(), effect.Redacted) {
		t.Errorf("the log has %q: %s", found, out.String())
	}
	if !strings.Contains(out.String(), "g.in.card=1") {
		t.Errorf("other attributes are gone: %s", out.String())
	}
}

// The reason that the user of the agent's host types is kept and told without what the call keeps secret.
func TestRedact_TheHostsUsersReason(t *testing.T) {
	w := newWorld(t, policy(strings.Replace(redacting, "approve: never", "approve: always\n    elicitation: true", 1)))
	h := handleOf(t, w.alice().with(principal("agent:alice")).mustBlock(login))
	err := w.ei.Decide(t.Context(), effectinterceptor.HostDecision{Principal: "agent:alice", Handle: h, Reason: "why does it send " + canary + "?"})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.only(); got.State != effect.StateDenied || !strings.HasPrefix(got.Reason, "why does it send ") || strings.Contains(got.Reason, canary) {
		t.Errorf("the effect is %s, by the reason %q", got.State, got.Reason)
	}
}
