package behavior

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// toolServers says which server a tool of the behavior fixtures is of. Any other tool is its own server.
var toolServers = map[string]string{
	"read_file": "filesystem", "write_file": "filesystem", "edit_file": "filesystem", "move_file": "filesystem",
	"list_directory": "filesystem", "search_files": "filesystem", "read_text_file": "filesystem",
	"read_query": "sqlite", "write_query": "sqlite", "list_tables": "sqlite", "describe_table": "sqlite",
	"create_table": "sqlite",
	"git_log":      "git", "git_show": "git", "git_diff_unstaged": "git",
	"read_graph": "memory", "create_entities": "memory", "add_observations": "memory",
	"browser_type": "browser", "browser_fill_form": "browser", "browser_snapshot": "browser",
	"execute_command": "shell",
}

// guard keeps secrets that one server has told from being sent to another, within one session. It remembers
// by tenant, principal and handle, and nothing at all where an invocation has no handle.
type guard struct {
	mu       sync.Mutex
	sessions map[string]*remembered
}

type remembered struct {
	origins map[string]map[string]bool // secret to the servers that may have told it
	open    map[string]string          // requests that wait for their response: span, or server, to server
	last    string                     // server whose response came last, for what comes of it after that
}

func newGuard(conformance.Args) judge {
	g := &guard{sessions: map[string]*remembered{}}
	return g.judge
}

func (g *guard) judge(_ context.Context, in *interceptors.Invocation) (*interceptors.Verdict, error) {
	secrets, err := secretsIn(in.Payload)
	if err != nil {
		return nil, err
	}
	key, ok := sessionKey(in)
	if !ok {
		return &interceptors.Verdict{Valid: true, Info: json.RawMessage(`{"stateless":true}`)}, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sessions[key]
	if s == nil {
		s = &remembered{origins: map[string]map[string]bool{}, open: map[string]string{}}
		g.sessions[key] = s
	}
	if in.Phase == interceptors.PhaseResponse {
		s.learn(in, secrets)
		return interceptors.Allow(), nil
	}
	return s.check(in, secrets), nil
}

// sessionKey tells sessions apart: a handle alone is chosen by whoever calls.
func sessionKey(in *interceptors.Invocation) (key string, ok bool) {
	principal, handle := "", in.Context.SessionID
	if p := in.Context.Principal; p != nil {
		principal = p.Type + " " + p.ID
	}
	if handle == "" && principal != "" {
		handle = in.Context.TraceID
	}
	if handle == "" {
		return "", false
	}
	return strings.Join([]string{in.Caller.Tenant, in.Caller.Subject, principal, handle}, "\x00"), true
}

// check denies a request that carries a secret to a server that has not told it.
func (s *remembered) check(in *interceptors.Invocation, secrets []string) *interceptors.Verdict {
	target := serverOf(in)
	for _, secret := range secrets {
		origins := s.origins[secret]
		for origin := range origins {
			if origin != target {
				return interceptors.Deny(fmt.Sprintf("a secret that was read from %s may not be sent to %s", origin, target))
			}
		}
	}
	s.open[span(in, target)] = target
	return interceptors.Allow()
}

// learn takes the secrets of a response for those of the request that it answers, or, where that is not
// known, of each request that waits.
func (s *remembered) learn(in *interceptors.Invocation, secrets []string) {
	var origins []string
	if key := span(in, ""); key != "" && s.open[key] != "" {
		origins = append(origins, s.open[key])
		delete(s.open, key)
	} else {
		for _, server := range s.open {
			origins = append(origins, server)
		}
		if len(s.open) == 1 {
			clear(s.open)
		}
	}
	switch {
	case len(origins) == 1:
		s.last = origins[0]
	case len(origins) == 0 && s.last != "":
		origins = []string{s.last}
	case len(origins) == 0:
		origins = []string{serverOf(in)}
	}
	for _, secret := range secrets {
		if s.origins[secret] == nil {
			s.origins[secret] = map[string]bool{}
			for _, origin := range origins {
				s.origins[secret][origin] = true
			}
		}
	}
}

// span is the one thing that both phases of a call share; without it requests are told apart by server.
func span(in *interceptors.Invocation, server string) string {
	if in.Context.TraceID != "" && in.Context.SpanID != "" {
		return in.Context.TraceID + "/" + in.Context.SpanID
	}
	return server
}

// serverOf is the server that an operation goes to: that of its tool, the authority or scheme of its
// resource, else the namespace of its event.
func serverOf(in *interceptors.Invocation) string {
	var name, uri string
	if raw := splice.Get(in.Payload, "name"); raw != nil && json.Unmarshal(raw, &name) == nil && name != "" {
		if server := toolServers[name]; server != "" {
			return server
		}
		return name
	}
	if raw := splice.Get(in.Payload, "uri"); raw != nil && json.Unmarshal(raw, &uri) == nil {
		if u, err := url.Parse(uri); err == nil && u.Host != "" {
			return u.Host
		} else if err == nil && u.Scheme != "" {
			return u.Scheme
		}
	}
	namespace, _, _ := strings.Cut(in.Event, "/")
	return namespace
}
