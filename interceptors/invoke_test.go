package interceptors_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/interceptors"
)

func callOf(name string, payload string) *interceptors.InvokeParams {
	return &interceptors.InvokeParams{
		Name: name, Event: "tools/call", Phase: interceptors.PhaseRequest, Payload: json.RawMessage(payload),
	}
}

func TestServer_Add(t *testing.T) {
	bad := func(change func(*interceptors.Validator)) *interceptors.Validator {
		v := validator("v", requestOnly("tools/call"), allow)
		change(v)
		return v
	}
	cases := map[string]struct {
		interceptor interceptors.Interceptor
		want        string
	}{
		"H18 a name that is taken":       {validator("taken", nil, allow), "taken"},
		"a taken name of the other type": {mutator("taken", nil, uppercaseNote), "taken"},
		"no name":                        {validator("", nil, allow), "name is empty"},
		"no handler":                     {validator("v", nil, nil), "no handler"},
		"the other type": {bad(func(v *interceptors.Validator) { v.Type = interceptors.TypeMutation }),
			"registered as validation"},
		"an unknown mode":  {bad(func(v *interceptors.Validator) { v.Mode = "enforce" }), "mode"},
		"an unknown phase": {bad(func(v *interceptors.Validator) { v.Hooks = []interceptors.Hook{{Phase: "both"}} }), "phase"},
		"a schema that is none": {bad(func(v *interceptors.Validator) {
			v.ConfigSchema = json.RawMessage(`{"type":"objekt"}`)
		}), "config schema"},
		"a schema that reads a file": {bad(func(v *interceptors.Validator) {
			v.ConfigSchema = json.RawMessage(`{"$ref":"file:///etc/passwd"}`)
		}), "self-contained"},
		"a default config that does not fit": {bad(func(v *interceptors.Validator) {
			v.ConfigSchema, v.DefaultConfig = json.RawMessage(rowsSchema), json.RawMessage(`{"maxRows":"x"}`)
		}), "/maxRows"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil, validator("taken", nil, allow))
			err := s.Add(c.interceptor)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("Add = %v, want an error about %q", err, c.want)
			}
			listed, err := s.List("")
			if err != nil {
				t.Fatal(err)
			}
			if len(listed) != 1 {
				t.Errorf("%d interceptors are listed, want 1", len(listed))
			}
		})
	}
}

func TestServer_List(t *testing.T) {
	s := newServer(t, nil,
		validator("any", requestOnly("*"), allow),
		mutator("prompts", bothPhases("prompts/*"), uppercaseNote),
		validator("tools", requestOnly("tools/call"), allow))
	listed, err := s.List("prompts/get")
	if err != nil {
		t.Fatal(err)
	}
	want := []interceptors.Descriptor{ // H17
		{Name: "any", Type: interceptors.TypeValidation, Hooks: requestOnly("*")},
		{Name: "prompts", Type: interceptors.TypeMutation, Hooks: bothPhases("prompts/*")},
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("List (-want +got)\n%s", diff)
	}
}

func TestServer_Invoke_Timeout(t *testing.T) {
	t.Run("H11 a handler that heeds its context is cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cancelled := false
			s := newServer(t, nil, validator("slow", requestOnly("tools/call"),
				func(ctx context.Context, _ *interceptors.Invocation) (*interceptors.Verdict, error) {
					<-ctx.Done()
					cancelled = true
					return nil, ctx.Err()
				}))
			checkTimeout(t, s)
			s.Wait()
			if !cancelled {
				t.Error("the handler's context was not cancelled")
			}
		})
	})
	t.Run("H12 a handler that does not is left behind", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			s := newServer(t, nil, validator("slow", requestOnly("tools/call"),
				func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
					<-release
					return interceptors.Allow(), nil
				}))
			checkTimeout(t, s)
			close(release)
			s.Wait()
		})
	})
	t.Run("a handler that is done in time is not touched", func(t *testing.T) {
		s := newServer(t, nil, validator("slow", requestOnly("tools/call"), allow))
		p := callOf("slow", `{}`)
		p.TimeoutMs = 60_000
		if _, err := s.Invoke(t.Context(), p); err != nil {
			t.Error(err)
		}
	})
}

func checkTimeout(t *testing.T, s *interceptors.Server) {
	t.Helper()
	p := callOf("slow", `{}`)
	p.TimeoutMs = 50
	start := time.Now()
	_, err := s.Invoke(t.Context(), p)
	if took := time.Since(start); took != 50*time.Millisecond {
		t.Errorf("Invoke took %v, want 50ms", took)
	}
	var timeout *interceptors.TimeoutError
	if !errors.As(err, &timeout) {
		t.Fatalf("Invoke = %v, want a TimeoutError", err)
	}
	w := interceptors.WireError(err)
	want := `{"interceptor":"slow","reason":"timeout","timeoutMs":50,"phase":"request"}`
	if w.Code != -32603 || string(w.Data) != want {
		t.Errorf("wire error = %d %s, want -32603 %s", w.Code, w.Data, want)
	}
}

func TestServer_Invoke_CallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newServer(t, nil, validator("slow", requestOnly("tools/call"),
			func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
				<-release
				return interceptors.Allow(), nil
			}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := callOf("slow", `{}`)
		p.TimeoutMs = 5000
		_, err := s.Invoke(ctx, p)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Invoke = %v, want the caller's own deadline", err)
		}
		var timeout *interceptors.TimeoutError
		if errors.As(err, &timeout) {
			t.Error("the caller's deadline is reported as the interceptor's")
		}
		close(release)
		s.Wait()
	})
}

func TestServer_Invoke_SurvivesPanic(t *testing.T) {
	s := newServer(t, nil,
		validator("panics", requestOnly("tools/call"), panics),
		validator("allows", requestOnly("tools/call"), allow))
	for _, timeout := range []int64{0, 60_000} {
		p := callOf("panics", `{}`)
		p.TimeoutMs = timeout
		var crashed *interceptors.CrashError
		if _, err := s.Invoke(t.Context(), p); !errors.As(err, &crashed) {
			t.Errorf("Invoke = %v, want a CrashError", err)
		}
	}
	if _, err := s.Invoke(t.Context(), callOf("allows", `{}`)); err != nil {
		t.Errorf("the next invocation: %v", err)
	}
}

func TestServer_Invoke_Config(t *testing.T) {
	var seen string
	v := validator("v", requestOnly("tools/call"),
		func(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
			seen = string(in.Config)
			return interceptors.Allow(), nil
		})
	v.ConfigSchema, v.DefaultConfig = json.RawMessage(rowsSchema), json.RawMessage(`{"maxRows":7}`)
	s := newServer(t, nil, v)
	for given, want := range map[string]string{"": `{"maxRows":7}`, `{"maxRows":9}`: `{"maxRows":9}`} { // H9
		p := callOf("v", `{}`)
		if given != "" {
			p.Config = json.RawMessage(given)
		}
		if _, err := s.Invoke(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if seen != want {
			t.Errorf("config %q reached the handler as %q, want %q", given, seen, want)
		}
	}
}

func TestServer_Invoke_CopiesThePayload(t *testing.T) {
	s := newServer(t, nil, validator("scribbles", requestOnly("tools/call"),
		func(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
			_ = append(in.Payload, "!!!!!!!!"...)
			if string(in.Config) != `{"a":1}` {
				t.Errorf("appending to the payload makes the config %q", in.Config)
			}
			clear(in.Payload)
			clear(in.Config)
			return interceptors.Allow(), nil
		}))
	p := callOf("scribbles", `{"name":"echo"}`)
	p.Config = json.RawMessage(`{"a":1}`)
	if _, err := s.Invoke(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if string(p.Payload) != `{"name":"echo"}` || string(p.Config) != `{"a":1}` {
		t.Errorf("the caller's payload is now %q and its config %q", p.Payload, p.Config)
	}
}

func TestServer_Invoke_ConfigFitsAgain(t *testing.T) {
	v := validator("v", requestOnly("tools/call"), allow)
	v.ConfigSchema = json.RawMessage(rowsSchema)
	s := newServer(t, nil, v)
	config := json.RawMessage(`{"maxRows":7}`)
	for _, c := range []struct {
		config string
		fits   bool
	}{{`{"maxRows":7}`, true}, {`{"maxRows":7}`, true}, {`{"maxRows":"x"}`, false}, {`{"maxRows":"x"}`, false}, {`{"maxRows":7}`, true}} {
		config = append(config[:0], c.config...) // an invoker may use its memory again
		p := callOf("v", `{}`)
		p.Config = config
		if _, err := s.Invoke(t.Context(), p); (err == nil) != c.fits {
			t.Errorf("config %s: %v", c.config, err)
		}
	}
}

func TestServer_Invoke_Certain(t *testing.T) {
	for name, c := range map[string]struct {
		change interceptors.Change
		want   interceptors.Result
	}{
		"a payload is taken at the handler's word": {interceptors.Change{Payload: json.RawMessage(`{"a": 1}`), Certain: true},
			interceptors.Result{Modified: true, Payload: json.RawMessage(`{"a": 1}`)}},
		"no payload is no change": {interceptors.Change{Certain: true},
			interceptors.Result{Payload: json.RawMessage(`{"a":1}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil, mutator("m", requestOnly("tools/call"),
				func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) { return &c.change, nil }))
			r, err := s.Invoke(t.Context(), callOf("m", `{"a":1}`))
			if err != nil {
				t.Fatal(err)
			}
			if r.Modified != c.want.Modified || string(r.Payload) != string(c.want.Payload) {
				t.Errorf("modified = %t with %s, want %t with %s", r.Modified, r.Payload, c.want.Modified, c.want.Payload)
			}
		})
	}
}

func TestServer_Invoke_Modified(t *testing.T) {
	cases := map[string]struct {
		in, out  string
		modified bool
	}{
		"another order of members":      {`{"a":1,"b":[true,null]}`, `{"b":[true,null],"a":1}`, false},
		"another spelling of a number":  {`{"a":100}`, `{"a":1.0e2}`, false},
		"another spelling of a text":    {`["é"]`, `["\u00e9"]`, false},
		"zero and minus zero":           {`[0]`, `[-0.0]`, false},
		"the last digit of a long id":   {`[9007199254740993]`, `[9007199254740992]`, true},
		"the last digit of a fraction":  {`[0.10000000000000000001]`, `[0.1]`, true},
		"an element more":               {`[1]`, `[1,1]`, true},
		"a member that becomes null":    {`{"a":1}`, `{"a":null}`, true},
		"a member that is gone":         {`{"a":1,"b":2}`, `{"a":1}`, true},
		"another member of equal count": {`{"a":1}`, `{"b":1}`, true},
		"a number that becomes a text":  {`[1]`, `["1"]`, true},
		"an exponent out of all reason": {`[1e99999999999]`, `[1E99999999999]`, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil, mutator("m", requestOnly("tools/call"),
				func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
					return &interceptors.Change{Payload: json.RawMessage(c.out)}, nil
				}))
			r, err := s.Invoke(t.Context(), callOf("m", c.in))
			if err != nil {
				t.Fatal(err)
			}
			want := c.in
			if c.modified {
				want = c.out
			}
			if r.Modified != c.modified || string(r.Payload) != want {
				t.Errorf("modified = %t with %s, want %t with %s", r.Modified, r.Payload, c.modified, want)
			}
		})
	}
}

// TestServer_Invoke_MalformedResult is case H28: our host never sends what a handler must not return.
func TestServer_Invoke_MalformedResult(t *testing.T) {
	change := func(c *interceptors.Change) interceptors.Interceptor {
		return mutator("i", bothPhases("tools/call"),
			func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) { return c, nil })
	}
	cases := map[string]interceptors.Interceptor{
		"a payload that is not JSON":    change(&interceptors.Change{Payload: json.RawMessage(`{"a":`)}),
		"two payloads in one":           change(&interceptors.Change{Payload: json.RawMessage(`{} {}`)}),
		"a payload with a member twice": change(&interceptors.Change{Payload: json.RawMessage(`{"a":1,"a":2}`)}),
		"info that is not an object":    change(&interceptors.Change{Info: json.RawMessage(`[]`)}),
		"no verdict": validator("i", requestOnly("tools/call"),
			func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) { return nil, nil }),
		"a validator that answers for the target": validator("i", requestOnly("tools/call"),
			func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
				return nil, &interceptors.RespondError{Result: json.RawMessage(`{}`)}
			}),
		"an answer for the target without content": mutator("i", requestOnly("tools/call"),
			func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
				return nil, &interceptors.RespondError{}
			}),
	}
	for name, i := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := newServer(t, nil, i).Invoke(t.Context(), callOf("i", `{}`))
			w := interceptors.WireError(err)
			want := `{"interceptor":"i","reason":"malformed result"}`
			if w.Code != -32603 || string(w.Data) != want {
				t.Errorf("wire error = %d %s, want -32603 %s", w.Code, w.Data, want)
			}
		})
	}
}

func TestServer_Invoke_PassesErrorsForTheRequester(t *testing.T) {
	block := &interceptors.BlockError{Message: "ask first", Data: json.RawMessage(`{"reason":"approval"}`)}
	respond := &interceptors.RespondError{Result: json.RawMessage(`{"n": 9007199254740993}`)}
	for _, want := range []error{block, respond} {
		s := newServer(t, nil, mutator("m", requestOnly("tools/call"),
			func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) { return nil, want }))
		if _, err := s.Invoke(t.Context(), callOf("m", `{}`)); err != want {
			t.Errorf("Invoke = %v, want the handler's own %v", err, want)
		}
	}
}

func TestServer_Invoke_Verdicts(t *testing.T) {
	msg := func(text string, s interceptors.Severity) []interceptors.Message {
		return []interceptors.Message{{Message: text, Severity: s}}
	}
	cases := map[string]struct {
		verdict interceptors.Verdict
		want    string
	}{
		"the zero verdict denies": {interceptors.Verdict{},
			`"valid":false,"severity":"error","messages":[{"message":"denied","severity":"error"}]`},
		"a denial keeps its messages and gets one that blocks": {
			interceptors.Verdict{Messages: msg("hm", interceptors.SeverityWarn)},
			`"valid":false,"severity":"error","messages":[{"message":"hm","severity":"warn"},{"message":"denied","severity":"error"}]`},
		"a warning has no message that blocks": {
			interceptors.Verdict{Severity: interceptors.SeverityWarn, Messages: msg("hm", interceptors.SeverityError)},
			`"valid":false,"severity":"warn","messages":[{"message":"hm","severity":"warn"}]`},
		"a pass has neither a severity nor a message that blocks": {
			interceptors.Verdict{Valid: true, Severity: interceptors.SeverityError, Messages: msg("hm", interceptors.SeverityError)},
			`"valid":true,"messages":[{"message":"hm","severity":"warn"}]`},
		"a severity that nobody knows is an error": {
			interceptors.Verdict{Severity: "fatal", Messages: msg("no", "")},
			`"valid":false,"severity":"error","messages":[{"message":"no","severity":"error"}]`},
		"suggestions stay digit for digit": {
			interceptors.Verdict{Valid: true, Suggestions: []interceptors.Suggestion{{Path: "a", Value: json.RawMessage(`1.0e2`)}}},
			`"valid":true,"suggestions":[{"path":"a","value":1.0e2}]`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil, validator("v", requestOnly("tools/call"),
				func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) { return &c.verdict, nil }))
			r, err := s.Invoke(t.Context(), callOf("v", `{}`))
			if err != nil {
				t.Fatal(err)
			}
			r.DurationMs = 0
			want := `{"interceptor":"v","type":"validation","phase":"request",` + c.want + `}`
			if diff := cmp.Diff(want, string(marshal(t, r))); diff != "" {
				t.Errorf("result (-want +got)\n%s", diff)
			}
		})
	}
}

func TestServer_Invoke_Wrapped(t *testing.T) {
	var seen string
	s := newServer(t, nil, validator("v", bothPhases("tools/call"),
		func(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
			seen = string(in.Payload)
			return &interceptors.Verdict{Messages: []interceptors.Message{
				{Message: "no", Path: "arguments.note"}, {Message: "no", Path: "/arguments/note"}, {Message: "no"},
			}}, nil
		}))
	cases := map[string]struct {
		payload string
		caller  interceptors.Caller
		sees    string
		paths   []string
	}{
		"the params are what the handler sees": {
			payload: `{"method":"tools/call","params":{"name":"echo"}}`,
			sees:    `{"name":"echo"}`, paths: []string{"params.arguments.note", "/params/arguments/note", ""}},
		"a bare payload keeps its paths": {
			payload: `{"name":"echo"}`,
			sees:    `{"name":"echo"}`, paths: []string{"arguments.note", "/arguments/note", ""}},
		"members beside the params are not hidden from the handler": {
			payload: `{"method":"tools/call","params":{"name":"echo"},"name":"wipe"}`,
			sees:    `{"method":"tools/call","params":{"name":"echo"},"name":"wipe"}`,
			paths:   []string{"arguments.note", "/arguments/note", ""}},
		"a whole message is a wrapping": {
			payload: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo"}}`,
			sees:    `{"name":"echo"}`, paths: []string{"params.arguments.note", "/params/arguments/note", ""}},
		"another method is not a wrapping": {
			payload: `{"method":"tools/list","params":{}}`,
			sees:    `{"method":"tools/list","params":{}}`, paths: []string{"arguments.note", "/arguments/note", ""}},
		"our own engine sends bare payloads only": {
			payload: `{"method":"tools/call","params":{"name":"echo"}}`, caller: interceptors.Caller{Local: true},
			sees: `{"method":"tools/call","params":{"name":"echo"}}`, paths: []string{"arguments.note", "/arguments/note", ""}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := callOf("v", c.payload)
			p.Caller = c.caller
			r, err := s.Invoke(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if seen != c.sees {
				t.Errorf("the handler saw %s, want %s", seen, c.sees)
			}
			var paths []string
			for _, m := range r.Messages {
				paths = append(paths, m.Path)
			}
			if diff := cmp.Diff(c.paths, paths); diff != "" {
				t.Errorf("paths (-want +got)\n%s", diff)
			}
		})
	}
}

func TestServer_Invoke_AWholeMessageComesBackAsOne(t *testing.T) {
	s := newServer(t, nil, mutator("m", bothPhases("tools/call"),
		func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
			return &interceptors.Change{Payload: json.RawMessage(`{"name":"echo2"}`)}, nil
		}))
	r, err := s.Invoke(t.Context(), callOf("m", `{"id":7, "params":{"name":"echo"}, "method":"tools/call","jsonrpc":"2.0"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":7, "params":{"name":"echo2"}, "method":"tools/call","jsonrpc":"2.0"}`
	if diff := cmp.Diff(want, string(r.Payload)); diff != "" || !r.Modified {
		t.Errorf("modified %t, payload (-want +got)\n%s", r.Modified, diff)
	}
}

func TestToolCall(t *testing.T) {
	name, arguments, err := interceptors.ToolCall(json.RawMessage(`{"name":"pay","arguments":{"cents": 1.0e2},"Name":"x"}`))
	if err != nil || name != "pay" || string(arguments) != `{"cents": 1.0e2}` {
		t.Errorf("ToolCall = %q, %s, %v", name, arguments, err)
	}
	for _, bad := range []string{``, `null`, `[]`, `{}`, `{"name":7}`, `{"name":""}`, `{"name":"a","name":"b"}`, `{"name":"a"} x`} {
		if _, _, err := interceptors.ToolCall(json.RawMessage(bad)); err == nil {
			t.Errorf("ToolCall(%s) gives no error", bad)
		}
	}
}

// TestServer_Invoke_Overhead keeps the in-process path free of surprises: see BenchmarkServer_Invoke.
func TestServer_Invoke_Overhead(t *testing.T) {
	s := newServer(t, nil, validator("v", requestOnly("tools/call"), allow))
	p := callOf("v", `{"name":"echo","arguments":{"note":"`+strings.Repeat("x", 1024)+`"}}`)
	p.Caller.Local = true
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := s.Invoke(context.Background(), p); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 15 {
		t.Errorf("Invoke allocates %v times, want 15 at most", allocs)
	}
}

func BenchmarkServer_Invoke(b *testing.B) {
	payload := `{"name":"echo","arguments":{"note":"` + strings.Repeat("x", 1024) + `"}}`
	stamped := `{"name":"echo","arguments":{"note":"` + strings.Repeat("x", 1024) + `"},"_meta":{"stamp":1}}`
	s := newServer(b, nil, validator("validator", requestOnly("tools/call"), allow),
		mutator("mutator", requestOnly("tools/call"),
			func(context.Context, *interceptors.Invocation) (*interceptors.Change, error) {
				return &interceptors.Change{Payload: json.RawMessage(stamped)}, nil
			}))
	for _, name := range []string{"validator", "mutator"} {
		for timeout, label := range map[int64]string{0: "no timeout", 5000: "timeout"} {
			b.Run(name+"/"+label, func(b *testing.B) {
				p := callOf(name, payload)
				p.Caller.Local, p.TimeoutMs = true, timeout
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.Invoke(context.Background(), p); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
