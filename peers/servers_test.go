//go:build peers

package peers_test

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
)

// server is one of the servers that are driven. Each run gets a fresh copy of what it works on.
type server struct {
	plan   string
	stdio  func(t *testing.T, dir string) []string // command line
	http   func(t *testing.T, dir string) string   // starts it and returns its URL; nil: it has none
	modern bool                                    // it speaks 2026-07-28
}

var servers = []server{
	{plan: "everything", stdio: everythingCommand, http: startEverything},
	{plan: "filesystem", stdio: filesystemCommand},
	{plan: "memory", stdio: memoryCommand},
	{plan: "payments", stdio: paymentsCommand, http: startPayments, modern: true},
}

// npmServer returns the main file of an installed server.
func npmServer(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("node_modules/@modelcontextprotocol", name, "dist/index.js"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run npm ci in peers", err)
	}
	return path
}

func everythingCommand(t *testing.T, _ string) []string {
	t.Helper()
	return []string{"node", npmServer(t, "server-everything"), "stdio"}
}

func startEverything(t *testing.T, _ string) string {
	t.Helper()
	port := mcptest.FreePort(t)
	cmd := exec.Command("node", npmServer(t, "server-everything"), "streamableHttp")
	cmd.Env = append(os.Environ(), "PORT="+port)
	mcptest.StartServer(t, cmd, regexp.MustCompile(`listening on port (\d+)`))
	return "http://127.0.0.1:" + port + "/mcp"
}

func filesystemCommand(t *testing.T, dir string) []string {
	t.Helper()
	dot, err := base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"a.txt": "alpha\nbeta\n", "sub/b.txt": "gamma\n", "dot.png": string(dot)}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"node", npmServer(t, "server-filesystem"), dir}
}

func memoryCommand(t *testing.T, dir string) []string {
	t.Helper()
	return []string{"env", "MEMORY_FILE_PATH=" + filepath.Join(dir, "memory.jsonl"), "node", npmServer(t, "server-memory")}
}

func paymentsCommand(t *testing.T, dir string) []string {
	t.Helper()
	return []string{mcptest.Build(t, "./examples/payments"), "--ledger", filepath.Join(dir, "ledger")}
}

func startPayments(t *testing.T, dir string) string {
	t.Helper()
	command := append(paymentsCommand(t, dir), "--http", "127.0.0.1:0")
	return mcptest.StartHTTP(t, exec.Command(command[0], command[1:]...))
}

// gatewayProgram is undolog: built here, or named by UNDOLOG_BIN.
func gatewayProgram(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("UNDOLOG_BIN"); path != "" {
		return path
	}
	return mcptest.Build(t, "./cmd/undolog")
}

// target is what a driver connects to: a URL, or a command when that is empty.
type target struct {
	url     string
	command []string
}

// gateway puts the gateway in front of an upstream.
func gateway(t *testing.T, agentHTTP bool, upstream target) target {
	t.Helper()
	args := []string{gatewayProgram(t), "gateway", "--db", filepath.Join(t.TempDir(), "effects.db")}
	if agentHTTP {
		args = append(args, "--http", "127.0.0.1:0")
	}
	if upstream.url != "" {
		args = append(args, "--upstream", upstream.url)
	} else {
		args = append(append(args, "--"), upstream.command...)
	}
	if !agentHTTP {
		return target{command: args}
	}
	return target{url: mcptest.StartHTTP(t, exec.Command(args[0], args[1:]...))}
}
