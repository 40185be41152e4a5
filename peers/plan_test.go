//go:build peers

package peers_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// step is one step of a plan; lib/plan.mjs says what each does.
type step struct {
	List         string              `json:"list"`
	Call         string              `json:"call"`
	Cancel       string              `json:"cancel"`
	Task         string              `json:"task"`
	Read         string              `json:"read"`
	ReadAll      bool                `json:"readAll"`
	Prompt       string              `json:"prompt"`
	Complete     *mcp.CompleteParams `json:"complete"`
	Level        mcp.LoggingLevel    `json:"level"`
	Ping         bool                `json:"ping"`
	Subscribe    string              `json:"subscribe"`
	Unsubscribe  string              `json:"unsubscribe"`
	RootsChanged bool                `json:"rootsChanged"`
	Await        string              `json:"await"`

	Arguments json.RawMessage `json:"arguments"`
	Progress  bool            `json:"progress"`
	Count     int             `json:"count"`
	Only      []string        `json:"only"`
	Era       string          `json:"era"`

	raw json.RawMessage // compact
}

// writePlan copies a plan with $DIR replaced and returns the copy's path.
func writePlan(t *testing.T, name, dir string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("plans", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(data), "$DIR", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readPlan(t *testing.T, path string) []step {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var raws []json.RawMessage
	if err := json.Unmarshal(data, &raws); err != nil {
		t.Fatalf("parse %s: %v", path, err)
	}
	steps := make([]step, len(raws))
	for i, raw := range raws {
		if err := json.Unmarshal(raw, &steps[i]); err != nil {
			t.Fatalf("parse %s: %v", path, err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			t.Fatal(err)
		}
		steps[i].raw = compact.Bytes()
	}
	return steps
}

// checkComplete fails when the server lists a tool or a prompt that the plan leaves out, so that a new
// version of a server is not compared in part.
func checkComplete(t *testing.T, plan []step, got *transcript) {
	t.Helper()
	used := map[string]bool{}
	for _, s := range plan {
		for _, name := range []string{s.Call, s.Cancel, s.Task, s.Prompt} {
			used[name] = true
		}
	}
	names := got.names(t)
	if len(names) == 0 {
		t.Error("the server lists no tools")
	}
	for _, name := range names {
		if !used[name] {
			t.Errorf("the plan does not use %s", name)
		}
	}
}

// names returns the names of the tools and prompts that the transcript's lists hold.
func (tr *transcript) names(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, s := range tr.Steps {
		if s.Name != `{"list":"tools"}` && s.Name != `{"list":"prompts"}` {
			continue
		}
		for _, message := range s.Messages {
			var m struct {
				Result struct{ Tools, Prompts []struct{ Name string } }
			}
			if err := json.Unmarshal([]byte(message), &m); err != nil {
				t.Fatalf("parse %s: %v", message, err)
			}
			for _, item := range slices.Concat(m.Result.Tools, m.Result.Prompts) {
				names = append(names, item.Name)
			}
		}
	}
	return names
}
