package gateway_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/undolog/undolog/gateway"
)

func tokens(t *testing.T, text string) auth.TokenVerifier {
	t.Helper()
	verify, err := gateway.LoadTokens(tokenFile(t, text, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return verify
}

func tokenFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadTokens(t *testing.T) {
	for name, text := range map[string]string{
		"YAML": "- token: 0123456789abcdef\n  tenant: acme\n  principal: ci\n",
		"JSON": `[{"token":"0123456789abcdef","tenant":"acme","principal":"ci"}]`,
	} {
		t.Run(name+" is read", func(t *testing.T) {
			verify := tokens(t, text)
			info, err := verify(t.Context(), "0123456789abcdef", nil)
			if err != nil || info.UserID != "ci" || info.Extra["tenant"] != "acme" {
				t.Errorf("got %+v, %v", info, err)
			}
			if _, err := verify(t.Context(), "0123456789abcdeF", nil); !errors.Is(err, auth.ErrInvalidToken) {
				t.Errorf("another token: %v, want ErrInvalidToken", err)
			}
		})
	}
	t.Run("a file that others can read is refused", func(t *testing.T) {
		path := tokenFile(t, "- {token: 0123456789abcdef, principal: ci}", 0o644)
		_, err := gateway.LoadTokens(path)
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "chmod 600 "+path) {
			t.Errorf("got %v", err)
		}
	})
	for name, text := range map[string]string{
		"no list":            "token: 0123456789abcdef",
		"empty":              "",
		"short token":        "- {token: abc, principal: ci}",
		"no principal":       "- {token: 0123456789abcdef}",
		"unknown member":     "- {token: 0123456789abcdef, principal: ci, admin: true}",
		"token stands twice": "- {token: 0123456789abcdef, principal: a}\n- {token: 0123456789abcdef, principal: b}",
	} {
		t.Run(name+" is refused, and the error keeps the token", func(t *testing.T) {
			_, err := gateway.LoadTokens(tokenFile(t, text, 0o600))
			if err == nil || strings.Contains(err.Error(), "0123456789abcdef") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestHTTPHandler_ListensOnLoopbackAloneWithoutTokens(t *testing.T) {
	open := newFront(t, nil, scripted(nil)).handler
	closed := newFront(t, &gateway.HTTPOptions{Verifier: tokens(t, "- {token: 0123456789abcdef, principal: ci}")}, scripted(nil)).handler
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0"} {
		if ln, err := open.Listen(addr); err == nil {
			ln.Close()
			t.Errorf("Listen(%q) without tokens gave no error", addr)
		}
	}
	for addr, handler := range map[string]*gateway.HTTPHandler{"127.0.0.1:0": open, "localhost:0": open, ":0": closed} {
		ln, err := handler.Listen(addr)
		if err != nil {
			t.Errorf("Listen(%q): %v", addr, err)
			continue
		}
		ln.Close()
	}
}

func TestHTTPHandler_ServeEndsItsSessions(t *testing.T) {
	closed := make(chan struct{})
	f := newFront(t, nil, onClose(scripted(nil), closed))
	ln, err := f.handler.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- f.handler.Serve(ctx, ln, patience) }()
	f.url = "http://" + ln.Addr().String()
	client := f.agent(t, "2025-11-25")
	stream, err := client.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	cancel()
	await(t, closed, "the session's upstream to be closed")
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := stream.Next(); err == nil {
		t.Error("the GET stream goes on")
	}
}
