package hosts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/hosts"
	"github.com/undolog/undolog/interceptors"
)

var benchPayload = json.RawMessage(`{"name":"pay","arguments":{"note":"` + strings.Repeat("x", 1000) + `"}}`)

// benchHosts are the ways to a host of validators that allow: in this process, and remote.
func benchHosts(b *testing.B) map[string]chain.Host {
	b.Helper()
	opts := &hosts.Options{Env: []string{asHost + "=1"}, Stderr: os.Stderr}
	command, err := hosts.Command("command", []string{os.Args[0]}, opts)
	if err != nil {
		b.Fatal(err)
	}
	handler, err := house().Handler(nil)
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(handler)
	url, err := hosts.URL("url", server.URL, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { command.Close(); url.Close(); server.Close() })
	return map[string]chain.Host{"local": chain.Local("local", house()), "stdio": command, "http": url}
}

// BenchmarkExecute is one request phase through interceptors that allow, by where they are. The row "bare"
// of a remote host is the same round trip without a chain.
func BenchmarkExecute(b *testing.B) {
	all := benchHosts(b)
	for _, where := range []string{"local", "stdio", "http"} {
		host := all[where]
		for _, n := range []int{1, 4, 16} {
			b.Run(fmt.Sprintf("%s/%d", where, n), func(b *testing.B) { benchExecute(b, host, n) })
		}
		if where == "local" {
			continue
		}
		b.Run(where+"/bare", func(b *testing.B) {
			for b.Loop() {
				p := invoke("v0", 0)
				p.Payload = benchPayload
				if _, err := host.Invoke(b.Context(), p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("nobody concerned", func(b *testing.B) { benchExecute(b, chain.Local("local", house()), 0) })
}

// benchExecute runs a phase with the first n of the host's validators.
func benchExecute(b *testing.B, host chain.Host, n int) {
	c, err := chain.New(&chain.Options{Posture: chain.PostureGateway})
	if err != nil {
		b.Fatal(err)
	}
	policy := &chain.HostPolicy{Overrides: map[string]chain.Override{}}
	listed, err := host.List(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, d := range listed {
		var number int
		if _, err := fmt.Sscanf(d.Name, "v%d", &number); err != nil || number >= n {
			policy.Overrides[d.Name] = chain.Override{Disabled: true}
		}
	}
	if err := c.Use(host, policy); err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		r := c.Execute(ctx, &chain.PhaseParams{Event: "tools/call", Phase: interceptors.PhaseRequest, Payload: benchPayload})
		if r.Abort != nil || len(r.Records) != n {
			b.Fatal(r.Abort, len(r.Records))
		}
	}
}
