package interceptors_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/interceptors"
)

const changedMessage = `{"jsonrpc":"2.0","method":"notifications/interceptors/list_changed"}`

func names(t *testing.T, s *interceptors.Server) []string {
	t.Helper()
	listed, err := s.List("")
	if err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, d := range listed {
		all = append(all, d.Name)
	}
	return all
}

func TestServer_Remove(t *testing.T) {
	s := newServer(t, nil, validator("a", requestOnly("*"), allow), validator("b", requestOnly("*"), allow))
	told := 0
	s.Watch(func() { told++ })
	s.Remove("a", "not there")
	if diff := cmp.Diff([]string{"b"}, names(t, s)); diff != "" {
		t.Errorf("List (-want +got)\n%s", diff)
	}
	s.Remove("a")
	if told != 1 {
		t.Errorf("watchers were told %d times of one change", told)
	}
	if err := s.Add(validator("a", requestOnly("*"), allow)); err != nil { // the name is free again
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b", "a"}, names(t, s)); diff != "" || told != 2 {
		t.Errorf("told %d times; List (-want +got)\n%s", told, diff)
	}
}

// announcing is a host in memory whose changes are announced.
func announcing(t *testing.T, revision string) (*interceptors.Server, *rawPeer) {
	t.Helper()
	s := newServer(t, nil, validator("v", requestOnly("tools/call"), allow))
	server, err := s.MCPServer(nil)
	if err != nil {
		t.Fatal(err)
	}
	peer := newRawPeer(t, server, s.Announcing)
	peer.greet(revision)
	peer.ask(revision, interceptors.MethodList, ``)
	return s, peer
}

func TestServer_Announcing(t *testing.T) {
	for _, revision := range []string{"2025-06-18", "2025-11-25"} {
		t.Run("a peer of "+revision+" is told", func(t *testing.T) {
			s, peer := announcing(t, revision)
			for _, change := range []func(){
				func() { add(t, s, "w") },
				func() { s.Remove("w") },
			} {
				change()
				if got := peer.hear(); got != changedMessage {
					t.Errorf("the peer hears %s", got)
				}
				s.Wait()
			}
		})
	}
	t.Run("a peer of 2026-07-28 hears what it has asked for", func(t *testing.T) {
		s, peer := announcing(t, "2026-07-28")
		add(t, s, "w")
		s.Wait()
		if got := peer.ask("2026-07-28", interceptors.MethodList, ``); !strings.Contains(got, `"name":"w"`) {
			t.Errorf("the next that it hears is %s", got)
		}
	})
	t.Run("a peer that reads nothing is told once, and holds nobody up", func(t *testing.T) {
		s, peer := announcing(t, "2025-11-25")
		for _, name := range []string{"1", "2", "3", "4", "5"} {
			add(t, s, name)
		}
		told := 0
		peer.say(`{"jsonrpc":"2.0","id":8,"method":"ping"}`)
		for answered := false; !answered || told == 0; {
			if heard := peer.hear(); heard == changedMessage {
				told++
			} else {
				answered = true
			}
		}
		if told > 2 {
			t.Errorf("told %d times", told)
		}
	})
	t.Run("a peer that has gone is forgotten", func(t *testing.T) {
		s, peer := announcing(t, "2025-11-25")
		peer.conn.Close()
		add(t, s, "w")
		s.Wait()
	})
	t.Run("peers are told the events that there are when they ask", func(t *testing.T) {
		s := newServer(t, nil)
		server, err := s.MCPServer(nil)
		if err != nil {
			t.Fatal(err)
		}
		add(t, s, "w")
		for _, revision := range revisions {
			peer, method, params := newRawPeer(t, server, nil), "server/discover", ``
			if revision < "2026-07-28" {
				method, params = "initialize", `"protocolVersion":"`+revision+`","capabilities":{},"clientInfo":{"name":"p","version":"1"}`
			}
			if got := peer.ask(revision, method, params); strings.Count(got, `{"supportedEvents":["added/event"]}`) != 2 {
				t.Errorf("%s: %s", revision, got)
			}
		}
	})
}

func add(t *testing.T, s *interceptors.Server, name string) {
	t.Helper()
	if err := s.Add(validator(name, requestOnly("added/event"), allow)); err != nil {
		t.Error(err)
	}
}

func TestHandler_Announces(t *testing.T) {
	s := newServer(t, nil, validator("v", requestOnly("tools/call"), allow))
	h, err := s.Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	session := send(t, request(t, http.MethodPost, server.URL, initialize)).Header.Get("Mcp-Session-Id")
	end := request(t, http.MethodDelete, server.URL, "")
	end.Header.Set("Mcp-Session-Id", session)
	defer send(t, end)
	get := request(t, http.MethodGet, server.URL, "")
	get.Header.Set("Mcp-Session-Id", session)
	get.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	res, err := http.DefaultClient.Do(get)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if media := res.Header.Get("Content-Type"); res.StatusCode != 200 || media != "text/event-stream" {
		t.Fatalf("the stream answers %d %s", res.StatusCode, media)
	}
	lines := bufio.NewReader(res.Body)
	if line, err := lines.ReadString('\n'); err != nil || line != ": ok\n" {
		t.Fatalf("the stream begins with %q, %v", line, err)
	}
	for _, change := range []func(){func() { add(t, s, "w") }, func() { s.Remove("w") }} {
		change()
		want := []string{"\n", "event: message\n", "data: " + changedMessage + "\n"}
		var got []string
		for range want {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, line)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the stream (-want +got)\n%s", diff)
		}
		s.Wait()
	}
	res.Body.Close() // nobody hears what comes now
	add(t, s, "x")
	refused := request(t, http.MethodGet, server.URL, "")
	refused.Header.Set("Mcp-Session-Id", "none")
	if got := send(t, refused); got.Status != http.StatusNotFound {
		t.Errorf("the stream of no session answers %d", got.Status)
	}
	s.Wait()
}

// asHost makes this program a host on its standard streams that gets another interceptor whenever one of its
// own is invoked.
const asHost = "UNDOLOG_TEST_HOST"

func playHost() {
	s := interceptors.NewServer(nil)
	err := s.Add(validator("grow", requestOnly("tools/call"), func(context.Context, *interceptors.Invocation) (*interceptors.Verdict, error) {
		return interceptors.Allow(), s.Add(validator("grown", requestOnly("tools/call"), allow))
	}))
	if err != nil {
		panic(err)
	}
	server, err := s.MCPServer(nil)
	if err != nil {
		panic(err)
	}
	_ = server.Run(context.Background(), s.Announcing(&mcp.StdioTransport{})) // its end is the test's
}

func TestServer_Announcing_OnStandardStreams(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asHost+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, line := range []string{
		initialize, `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"interceptor/invoke","params":` + string(invokeOf("grow")) + `}`,
	} {
		if _, err := io.WriteString(in, strings.ReplaceAll(line, "\n", "")+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	var heard []string
	for len(heard) < 3 && lines.Scan() {
		heard = append(heard, lines.Text())
	}
	if !slices.Contains(heard, changedMessage) {
		t.Errorf("the peer hears\n%s", strings.Join(heard, "\n"))
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
