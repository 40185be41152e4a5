package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/chainfile"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
)

func chainFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "chain.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestChain_Check(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		code int
		want string
	}{
		"a good one":            {"version: 1\nhosts: [{name: a, command: [x]}]\n", exitOK, "is a valid chain file (1 hosts)"},
		"a misspelt field":      {"version: 1\nhosts: [{name: a, comand: [x]}]\n", exitFailed, `:2:19: unknown field "comand": did you mean "command"?`},
		"everything is told":    {"version: 1\nhosts:\n  - {name: a}\n  - {name: a, url: ftp://x}\n", exitFailed, "the name a is taken"},
		"a file that is absent": {"", exitFailed, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "none.yaml")
			if c.text != "" {
				path = chainFile(t, c.text)
			}
			if out, code := said(t, "chain", "check", path); code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want %d; said %q, want in it %q", code, c.code, out, c.want)
			}
		})
	}
	if out, code := said(t, "chain", "schema"); code != exitOK || !json.Valid([]byte(out)) {
		t.Errorf("exit code %d, schema %.100s", code, out)
	}
}

func TestChain_Explain(t *testing.T) {
	path := chainFile(t, "version: 1\nhosts: [{name: gone, command: [/nowhere/such-a-program], interceptors: {guard: {required: validation}}}]\n")
	out, code := said(t, "--log-level", "error", "chain", "explain", "tools/call", "request", "--json", "--chain", path)
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, out)
	}
	type row struct {
		Position   int
		Name, Side string
		Missing    bool
	}
	var got []row
	for line := range strings.Lines(out) {
		var r row
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			got = append(got, r)
		}
	}
	want := []row{
		{1, "undolog/guard", "agent", false}, {2, "guard", "agent", true}, {3, "undolog/effect", "upstream", false},
		{0, "undolog/catalog", "upstream", false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got)\n%s\n%s", diff, out)
	}
	out, _ = said(t, "chain", "explain", "tools/call", "response", "--side", "upstream")
	for _, text := range []string{"undolog/effect", "nearest the upstream", "no hook for tools/call response: it has tools/list response"} {
		if !strings.Contains(out, text) {
			t.Errorf("%q is not in\n%s", text, out)
		}
	}
	if strings.Contains(out, "undolog/guard") {
		t.Errorf("the other side is in\n%s", out)
	}
	for _, args := range [][]string{{"tools/call"}, {"tools/call", "both"}, {"tools/call", "request", "--side", "left"}} {
		if out, code := said(t, append([]string{"chain", "explain"}, args...)...); code != exitUsage {
			t.Errorf("%v: exit code %d, %s", args, code, out)
		}
	}
}

// An interceptor that does not answer holds an operation up for as long as the file's deadline lets it.
func TestChain_DeadlineOfTheFileBoundsAPhase(t *testing.T) {
	server := httptest.NewServer(slowHost(t))
	t.Cleanup(server.Close)
	path := chainFile(t, "version: 1\ndeadline: 300ms\nhosts: [{name: slow, url: "+server.URL+"}]\n")
	withStore(t, filepath.Join(t.TempDir(), "log.db"), func(log *store.Log) {
		ei := effectinterceptor.New(log, &effectinterceptor.Options{})
		c, hosts, err := newGatewayChain(chainCommand(), ei, path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer chainfile.Close(hosts)
		r := c.Execute(t.Context(), &chain.PhaseParams{Event: "tools/list", Phase: interceptors.PhaseRequest, Payload: json.RawMessage(`{}`)})
		if r.Status != chain.StatusTimeout {
			t.Errorf("the phase ends with %s (%+v), want %s", r.Status, r.Abort, chain.StatusTimeout)
		}
	})
}

// slowHost has a validator that does not answer until nobody waits for it.
func slowHost(t *testing.T) http.Handler {
	t.Helper()
	s := interceptors.NewServer(nil)
	err := s.Add(&interceptors.Validator{
		Descriptor: interceptors.Descriptor{Name: "slow", Hooks: []interceptors.Hook{{Events: []string{"*"}, Phase: interceptors.PhaseRequest}}},
		Validate: func(ctx context.Context, _ *interceptors.Invocation) (*interceptors.Verdict, error) {
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Second):
			}
			return interceptors.Allow(), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := s.Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}
