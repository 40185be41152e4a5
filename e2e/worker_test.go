package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// workerEnv names a directory and makes this test program an MCP server on stdio whose tool works on tasks. They
// outlive the program: how the one task stands is a file of the directory.
const workerEnv = "E2E_WORKER"

// worker is the far end of a worker's directory: what it has done, and how its task stands.
type worker struct {
	t   *testing.T
	dir string
}

func newWorker(t *testing.T, generation string) *worker {
	w := &worker{t, t.TempDir()}
	w.put("generation", generation)
	w.put("status", "working")
	return w
}

func (w *worker) put(name, text string) {
	w.t.Helper()
	next := filepath.Join(w.dir, name+".next")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(w.dir, name)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *worker) effects() int { return strings.Count(read(w.dir, "ledger"), "\n") }

// read is a file of the directory; empty when it is not there.
func read(dir, name string) string {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !os.IsNotExist(err) {
		panic(err)
	}
	return string(data)
}

// work serves standard input and output until they end.
func work(dir string) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var r struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(lines.Bytes(), &r) != nil || r.ID == nil {
			continue
		}
		fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,%s}\n", r.ID, workerAnswer(dir, r.Method))
	}
}

// workerAnswer is the member of the answer that is not its frame.
func workerAnswer(dir, method string) string {
	modern, status := read(dir, "generation") == "2026-07-28", read(dir, "status")
	task := fmt.Sprintf(`"taskId":"t1","status":%q,"createdAt":"2026-07-28T00:00:00Z"`, status)
	switch method {
	case "initialize":
		return `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"worker","version":"1"}}`
	case "tools/list":
		return `"result":{"tools":[{"name":"work","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}]}`
	case "tools/call":
		note(dir)
		if modern {
			return `"result":{"resultType":"task",` + task + `,"ttlMs":60000,"pollIntervalMs":50}`
		}
		return `"result":{"task":{` + task + `,"ttl":60000,"pollInterval":50}}`
	case "tasks/get":
		return workerTask(task, status, modern)
	case "tasks/result":
		if status == "failed" {
			return `"error":{"code":-32050,"message":"out of paper"}`
		}
		return `"result":{"content":[{"type":"text","text":"printed"}],"receipt":9007199254740993}`
	}
	return `"error":{"code":-32601,"message":"no such method"}`
}

func workerTask(task, status string, modern bool) string {
	switch {
	case status == "forgotten":
		return `"error":{"code":-32602,"message":"Task not found"}`
	case modern && status == "completed":
		task += `,"result":{"content":[{"type":"text","text":"printed"}],"receipt":9007199254740993}`
	case modern && status == "failed":
		task += `,"error":{"code":-32050,"message":"out of paper"}`
	}
	return `"result":{` + task + `}`
}

// note appends an effect to the worker's ledger.
func note(dir string) {
	f, err := os.OpenFile(filepath.Join(dir, "ledger"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.WriteString("worked\n"); err != nil {
		panic(err)
	}
}
