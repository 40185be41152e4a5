package conformance

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// SuiteVersion is the version of the cases that Suite returns. It changes when a case is added, removed or
// expects something else.
const SuiteVersion = "1.4.0"

//go:embed cases
var cases embed.FS

// Suite returns this package's own cases, sorted by file.
func Suite() ([]*Fixture, error) { return Load(cases) }

// Load reads every fixture below the root of a file system, sorted by file: each .json file holds one, or
// a list. Files that are no fixtures (a manifest, schemas) are passed over: those in a directory named
// schema, and objects without steps. Two fixtures of one id are an error.
func Load(fsys fs.FS) ([]*Fixture, error) {
	var all []*Fixture
	seen := map[string]string{}
	err := fs.WalkDir(fsys, ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "schema" || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(file) != ".json":
			return nil
		}
		fixtures, err := loadFile(fsys, file)
		if err != nil {
			return fmt.Errorf("load %s: %w", file, err)
		}
		for _, f := range fixtures {
			if first, twice := seen[f.ID]; twice {
				return fmt.Errorf("load %s: fixture %s is in %s too", file, f.ID, first)
			}
			seen[f.ID] = file
		}
		all = append(all, fixtures...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func loadFile(fsys fs.FS, file string) ([]*Fixture, error) {
	raw, err := fs.ReadFile(fsys, file)
	if err != nil {
		return nil, err
	}
	if trimmed := bytes.TrimSpace(raw); len(trimmed) > 0 && trimmed[0] == '[' {
		var entries []json.RawMessage
		if json.Unmarshal(raw, &entries) == nil && !slices.ContainsFunc(entries, isFixture) {
			return nil, nil
		}
		var list []*Fixture
		if err := decodeStrict(raw, &list); err != nil {
			return nil, err
		}
		for _, f := range list {
			if err := f.normalize(); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	if !isFixture(raw) {
		return nil, nil
	}
	f := new(Fixture)
	if err := decodeStrict(raw, f); err != nil {
		return nil, err
	}
	return []*Fixture{f}, f.normalize()
}

func isFixture(raw json.RawMessage) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return true // let decodeStrict say what is wrong
	}
	return members["steps"] != nil || members["interceptors"] != nil && members["requirement"] != nil
}

// decodeStrict refuses unknown members: an expectation that is misspelt would hold always.
func decodeStrict(raw []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// normalize checks the fixture and writes its older spellings as the newer ones.
func (f *Fixture) normalize() error {
	if f.ID == "" || len(f.Steps) == 0 && !f.Rejected {
		return errors.New("a fixture needs an id and steps")
	}
	if f.Posture == "" {
		f.Posture = PostureClient
	}
	if f.Posture != PostureClient && f.Posture != PostureServer && f.Posture != PostureAny {
		return fmt.Errorf("fixture %s: posture %q", f.ID, f.Posture)
	}
	for i := range f.Interceptors {
		in := &f.Interceptors[i]
		if in.Mode == "enforce" {
			in.Mode = "active"
		}
		if in.Phases == "" {
			in.Phases = "both"
		}
	}
	for i := range f.Steps {
		s := &f.Steps[i]
		if s.Op == "chain" {
			s.Op = OpApply
		}
		if err := s.check(); err != nil {
			return fmt.Errorf("fixture %s: step %d: %w", f.ID, i+1, err)
		}
	}
	return nil
}

func (s *Step) check() error {
	switch s.Op {
	case OpList:
	case OpChange:
		return nil // without interceptors time passes, and that is all
	case OpInvoke:
		if s.Params == nil {
			return errors.New("an invoke step needs params")
		}
	case OpApply:
		if s.Event == nil || s.Phase == "" || s.Expect.Decision == "" {
			return errors.New("an apply step needs an event, a phase and an expected decision")
		}
	case OpExchange:
		if s.Event == nil || s.Upstream == nil {
			return errors.New("an exchange step needs an event and an upstream")
		}
	case OpRequest:
		if s.Request == nil {
			return errors.New("a request step needs a request")
		}
	default:
		return fmt.Errorf("op %q is not one of list, invoke, apply, exchange, request, change", s.Op)
	}
	return s.Expect.check()
}

// check refuses an expectation that nothing could fail.
func (e *Expect) check() error {
	if strings.Contains(e.Decision, "|") || e.Decision != "" && e.Decision != "allow" && e.Decision != "deny" {
		return fmt.Errorf("decision %q is neither allow nor deny", e.Decision)
	}
	empty := e.Result == nil && e.Canonical == "" && e.ErrorCode == nil && e.Decision == "" && e.Match == nil &&
		e.Status == 0 && e.Received == nil && e.Asked == nil && e.Told == nil && e.Notified == nil && len(e.Alerts) == 0 && len(e.Calls) == 0 && len(e.Requires) == 0 &&
		len(e.AnyOf) == 0 && len(e.Absent) == 0
	if empty {
		return errors.New("nothing is expected")
	}
	if e.ErrorCode != nil && (e.Result != nil || e.Canonical != "") {
		return errors.New("an error and a result are expected at once")
	}
	return nil
}
