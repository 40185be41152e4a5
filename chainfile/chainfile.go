package chainfile

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/timespan"
	"github.com/undolog/undolog/internal/yamlfile"
)

//go:embed chain.schema.json
var schemaText string

// Schema returns the JSON Schema of chain files.
func Schema() string { return schemaText }

// Error is one thing that is wrong in a chain file, and what to do about it.
type Error = yamlfile.Error

var schema = sync.OnceValue(func() *yamlfile.Schema {
	return yamlfile.NewSchema("https://undolog.dev/chain.schema.json", schemaText, yamlfile.Words{
		Pattern: patternHint,
		Secret: func(location []string) bool {
			return slices.Contains(location, "headers") || slices.Contains(location, "env")
		},
	})
})

func patternHint(name string) string {
	switch name {
	case "timeout", "deadline":
		return "it must be a duration such as 500ms, 30s or 2m"
	case "name":
		return "it must begin with a letter or digit and have nothing but those and . _ -"
	}
	return "write env:NAME, the value comes from the environment variable NAME: a secret in a file is soon in a repository"
}

// File is a chain file that was checked.
type File struct {
	// Deadline bounds one phase of an operation, see chain.Options. Zero: no bound.
	Deadline time.Duration
	Hosts    []Host
}

// Host is one interceptor host of a File. Exactly one of Command and URL is set.
type Host struct {
	Name         string                 `json:"name"`
	Command      []string               `json:"command"`
	URL          string                 `json:"url"`
	Headers      map[string]string      `json:"headers"` // env:VAR
	Env          map[string]string      `json:"env"`     // env:VAR
	Side         chain.Side             `json:"side"`
	Respond      bool                   `json:"respond"`
	Wrapped      bool                   `json:"wrapped"`
	Strict       bool                   `json:"strict"`
	Timeout      duration               `json:"timeout"`
	Connections  int                    `json:"connections"`
	MaxPayload   int64                  `json:"max_payload"`
	Interceptors map[string]Interceptor `json:"interceptors"`
}

// Interceptor is what a File says of one interceptor. Zero fields leave its author's word.
type Interceptor struct {
	Required interceptors.Type      `json:"required"`
	Disabled bool                   `json:"disabled"`
	Mode     interceptors.Mode      `json:"mode"`
	FailOpen *bool                  `json:"fail_open"`
	Priority *interceptors.Priority `json:"priority"`
	Timeout  duration               `json:"timeout"`
	Hooks    []interceptors.Hook    `json:"hooks"`
	Config   json.RawMessage        `json:"config"`
	Side     chain.Side             `json:"side"`
}

// duration is read from text that the schema has seen.
type duration time.Duration

// UnmarshalJSON reads text such as "30s".
func (d *duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	read, err := timespan.Parse(text)
	if err != nil {
		return err
	}
	*d = duration(read)
	return nil
}

// Parse reads a chain file. name is shown in errors; the error joins one *Error for everything that is
// wrong, in the order of the file.
func Parse(name string, data []byte) (*File, error) {
	f, err := yamlfile.Read(name, "chain file", data)
	if err != nil {
		return nil, err
	}
	if err := schema().Check(f); err != nil {
		return nil, err
	}
	var read struct {
		Deadline duration `json:"deadline"`
		Hosts    []Host   `json:"hosts"`
	}
	if err := json.Unmarshal(f.JSON, &read); err != nil {
		return nil, f.Errorf(yamlfile.Place{}, "%v", err)
	}
	found := checkHosts(f, read.Hosts)
	if f.Has("deadline") && read.Deadline <= 0 {
		found = errors.Join(f.Errorf(f.Value("deadline"), "deadline must be longer than nothing: leave it out for none"), found)
	}
	return &File{Deadline: time.Duration(read.Deadline), Hosts: read.Hosts}, found
}

// reserved is the host of our own interceptors.
const reserved = "undolog"

func checkHosts(f *yamlfile.File, all []Host) error {
	var found []error
	seen := map[string]bool{reserved: true}
	for i := range all {
		h := &all[i]
		c := hostCheck{file: f, host: h, at: []string{"hosts", strconv.Itoa(i)}}
		if seen[h.Name] {
			c.refuse("the name %s is taken: give each host another, and none of them %s", []string{"name"}, h.Name, reserved)
		}
		seen[h.Name] = true
		c.connection()
		for _, name := range slices.Sorted(maps.Keys(h.Interceptors)) {
			c.interceptor(name, h.Interceptors[name])
		}
		found = append(found, c.found...)
	}
	return yamlfile.InOrder(found)
}

// hostCheck gathers what contradicts itself in one host.
type hostCheck struct {
	file  *yamlfile.File
	host  *Host
	at    []string
	found []error
}

// refuse complains about the field at a path below the host; no path is the host itself.
func (c *hostCheck) refuse(format string, path []string, args ...any) {
	where := c.file.Key(slices.Concat(c.at, path)...)
	if len(path) == 0 {
		where = c.file.Value(c.at...)
	}
	c.found = append(c.found, c.file.Errorf(where, format, args...))
}

func (c *hostCheck) connection() {
	h := c.host
	switch {
	case len(h.Command) == 0 && h.URL == "":
		c.refuse("host %s is nowhere: give it a command or a url", nil, h.Name)
	case len(h.Command) > 0 && h.URL != "":
		c.refuse("command and url are two hosts: keep one", []string{"url"})
	case h.URL == "" && len(h.Headers) > 0:
		c.refuse("headers are for a url: a command has env", []string{"headers"})
	case h.URL != "" && len(h.Env) > 0:
		c.refuse("env is for a command: a url has headers", []string{"env"})
	case h.URL != "" && !strings.HasPrefix(h.URL, "http://") && !strings.HasPrefix(h.URL, "https://"):
		c.refuse("url is %q: it must begin with https:// or http://", []string{"url"}, h.URL)
	}
}

func (c *hostCheck) interceptor(name string, i Interceptor) {
	path := func(field string) []string { return []string{"interceptors", name, field} }
	if i.Required != "" && i.Disabled {
		c.refuse("%s is required and disabled: keep one", path("disabled"), name)
	}
	if i.Required == interceptors.TypeValidation && i.Priority != nil {
		c.refuse("a validation has no order: take priority away", path("priority"))
	}
	for _, h := range i.Hooks {
		for _, event := range h.Events {
			if today, old := interceptors.OldEvent(event); old {
				c.refuse("%s is a name of older drafts: write %q with phase %s", path("hooks"), event, "*", today)
			}
		}
	}
}

// Policy is what a chain is to know of the host.
func (h *Host) Policy() *chain.HostPolicy {
	p := &chain.HostPolicy{
		Side: h.Side, MaxPayload: h.MaxPayload,
		Required: map[string]interceptors.Type{}, Overrides: map[string]chain.Override{},
	}
	if p.MaxPayload == 0 {
		p.MaxPayload = defaultMaxPayload
	}
	for name, i := range h.Interceptors {
		if i.Required != "" {
			p.Required[name] = i.Required
		}
		p.Overrides[name] = chain.Override{
			Mode: i.Mode, FailOpen: i.FailOpen, Priority: i.Priority, Side: i.Side,
			TimeoutMs: time.Duration(i.Timeout).Milliseconds(),
			Config:    i.Config, Hooks: i.Hooks, Disabled: i.Disabled,
		}
	}
	return p
}

// defaultMaxPayload is what the hosts that we know take as a body.
const defaultMaxPayload = 4 << 20

// MissingEnvError says that a file names an environment variable that is not set.
type MissingEnvError struct{ Host, Field, Variable string }

func (e *MissingEnvError) Error() string {
	return fmt.Sprintf("host %s: %s: the environment variable %s is not set", e.Host, e.Field, e.Variable)
}
