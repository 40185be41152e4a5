//go:build peers

package peers_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// transcript is what a driver has kept. Messages are texts, exactly as they came.
type transcript struct {
	Era           string   `json:"era"` // legacy, or modern from 2026-07-28 on
	Steps         []record `json:"steps"`
	Requests      []string `json:"requests"`      // of the server, in order
	Notifications []string `json:"notifications"` // of the server but progress
}

// record is one step: the responses and the progress that came during it, and how the SDK took it.
type record struct {
	Name     string   `json:"name"`
	Messages []string `json:"messages"`
	Outcome  string   `json:"outcome"`
}

// rules replace in every string what differs from run to run without a gateway too.
var rules = []struct {
	pattern     *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uuid>"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "<id>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`\d{1,2}:\d\d:\d\d [AP]M`), "<time>"},
	{regexp.MustCompile(`(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d GMT\S* \([^)]*\)`), "<time>"},
	{regexp.MustCompile(`"PORT":"\d+"`), `"PORT":"<port>"`}, // of server-everything on HTTP, which shows its environment
	// server-everything draws the level of simulated log messages.
	{regexp.MustCompile(`^[A-Z][a-z]+[- ]level[- ]message`), "<some>-level message"},
}

// comparable is a transcript as lines that two runs have in common. Everything counts but, while
// connecting, refused probes: how a client finds the server's revision is its own affair, what it finds
// is not. Notifications are compared as a set, because servers send them when they like. Those that a
// list has changed are left out: server-everything sends one while a session is being opened, and
// whether a client on HTTP sees it depends on when it opens its stream.
func (tr *transcript) comparable(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	for i, s := range tr.Steps {
		fmt.Fprintf(&out, "step %s: %s\n", normalize(s.Name, dir), normalize(s.Outcome, dir))
		for _, text := range withoutRepeats(s.Messages) {
			m := parseMessage(t, text)
			if i == 0 && m["error"] != nil {
				continue
			}
			fmt.Fprintf(&out, "  %s\n", canonical(t, m, dir))
		}
	}
	for _, text := range tr.Requests {
		fmt.Fprintf(&out, "request %s\n", canonical(t, parseMessage(t, text), dir))
	}
	var set []string
	for _, text := range tr.Notifications {
		m := parseMessage(t, text)
		if method, _ := m["method"].(string); strings.HasSuffix(method, "/list_changed") && !strings.Contains(method, "resources") {
			continue
		}
		set = append(set, "notification "+canonical(t, withoutLevel(m), dir)+"\n")
	}
	slices.Sort(set)
	out.WriteString(strings.Join(slices.Compact(set), ""))
	return out.String()
}

// withoutRepeats counts a message once that a resumed stream has brought again.
func withoutRepeats(texts []string) []string {
	var once []string
	for _, text := range texts {
		if !slices.Contains(once, text) {
			once = append(once, text)
		}
	}
	return once
}

// takeExtension removes what the gateway adds to capabilities, and reports whether it was there.
func (tr *transcript) takeExtension(t *testing.T) bool {
	t.Helper()
	found := false
	for i := range tr.Steps {
		for j, text := range tr.Steps[i].Messages {
			m := parseMessage(t, text)
			result, _ := m["result"].(map[string]any)
			capabilities, _ := result["capabilities"].(map[string]any)
			extensions, _ := capabilities["extensions"].(map[string]any)
			if _, ok := extensions["dev.undolog/gateway"]; !ok {
				continue
			}
			found = true
			delete(extensions, "dev.undolog/gateway")
			if len(extensions) == 0 {
				delete(capabilities, "extensions")
			}
			tr.Steps[i].Messages[j] = marshal(t, m)
		}
	}
	return found
}

func parseMessage(t *testing.T, text string) map[string]any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber() // digit for digit
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		t.Fatalf("parse %s: %v", text, err)
	}
	return m
}

func withoutLevel(m map[string]any) map[string]any {
	params, _ := m["params"].(map[string]any)
	if data, _ := params["data"].(string); strings.Contains(data, "level") {
		delete(params, "level")
	}
	return m
}

func canonical(t *testing.T, m map[string]any, dir string) string {
	t.Helper()
	return marshal(t, walk(m, dir))
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

func walk(v any, dir string) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = walk(member, dir)
		}
	case []any:
		for i, item := range v {
			v[i] = walk(item, dir)
		}
	case string:
		return normalize(v, dir)
	}
	return v
}

func normalize(s, dir string) string {
	if plain, err := base64.StdEncoding.DecodeString(s); err == nil && strings.HasPrefix(string(plain), "Resource ") {
		return "base64 of " + normalize(string(plain), dir)
	}
	s = strings.ReplaceAll(sortedObject(s), dir, "<dir>")
	for _, r := range rules {
		s = r.pattern.ReplaceAllString(s, r.replacement)
	}
	return s
}

// sortedObject sorts a text that is a JSON object of strings, such as an environment: its order is that
// of whoever started the server.
func sortedObject(s string) string {
	var members map[string]string
	if !strings.HasPrefix(s, "{") || json.Unmarshal([]byte(s), &members) != nil {
		return s
	}
	sorted, err := json.Marshal(members)
	if err != nil {
		return s
	}
	return string(sorted)
}
