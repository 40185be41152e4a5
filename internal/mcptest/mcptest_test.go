package mcptest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/internal/mcptest"
)

func TestStdio(t *testing.T) {
	t.Run("bytes go out as they are and come back as they came", func(t *testing.T) {
		echo := mcptest.Start(t, "cat")
		line := `{"jsonrpc":"2.0","id":9007199254740993,"result":{"n":1.0e2,"n2":-0}}`
		echo.MustSend(line)
		if got := string(echo.Response(`9007199254740993`).Raw); got != line {
			t.Errorf("got %s", got)
		}
	})
	t.Run("each response is taken once, in order of arrival", func(t *testing.T) {
		echo := mcptest.Start(t, "cat")
		for n := range 3 {
			echo.MustSend(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":%d}`, n))
		}
		var got []string
		for range 3 {
			got = append(got, string(echo.Response(`1`).Result))
		}
		if diff := cmp.Diff([]string{"0", "1", "2"}, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
	t.Run("a string id is another id than its number", func(t *testing.T) {
		echo := mcptest.Start(t, "cat")
		echo.MustSend(`{"jsonrpc":"2.0","id":"1","result":"text"}`)
		echo.MustSend(`{"jsonrpc":"2.0","id":1,"result":"number"}`)
		if got := string(echo.Response(`1`).Result); got != `"number"` {
			t.Errorf("got %s", got)
		}
	})
	t.Run("the end of the child ends the wait", func(t *testing.T) {
		echo := mcptest.Start(t, "cat")
		echo.Kill()
		if _, err := echo.Await(t.Context(), func(mcptest.Message) bool { return true }); !errors.Is(err, io.EOF) {
			t.Errorf("error %v, want io.EOF", err)
		}
		if status := echo.Wait(); status != -1 {
			t.Errorf("status %d, want -1", status)
		}
	})
}

func TestHTTP(t *testing.T) {
	t.Run("2026-07-28 repeats the method and the name in headers", func(t *testing.T) {
		got := map[string]string{}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, name := range []string{"Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Session-Id"} {
				got[name] = r.Header.Get(name)
			}
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		}))
		defer server.Close()
		client := &mcptest.HTTP{URL: server.URL, Version: "2026-07-28"}
		if _, err := client.Call(t.Context(), `1`, "charge", `{}`); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "charge", "Mcp-Session-Id": ""}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("headers (-want +got)\n%s", diff)
		}
	})
	t.Run("a stream is read event by event and cut by Close", func(t *testing.T) {
		cut := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, ": hello\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/x\"}\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(cut)
		}))
		defer server.Close()
		stream, err := (&mcptest.HTTP{URL: server.URL}).Post(context.Background(), `{}`)
		if err != nil {
			t.Fatal(err)
		}
		m, err := stream.Next()
		if err != nil || m.Method != "notifications/x" {
			t.Errorf("message %s, error %v", m.Raw, err)
		}
		stream.Close()
		<-cut
	})
}
