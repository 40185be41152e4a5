package interceptors_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/interceptors"
)

// What a descriptor says beside its name, type, mode and hooks does not take its interceptor out.
func TestClient_List_DescriptorsThatCanBeReadInPart(t *testing.T) {
	hooks := bothPhases("tools/call")[:1]
	guard := func(change func(*interceptors.Descriptor)) *interceptors.Descriptor {
		d := &interceptors.Descriptor{Name: "guard", Type: interceptors.TypeValidation, Hooks: hooks}
		if change != nil {
			change(d)
		}
		return d
	}
	const head, hook = `"name":"guard","type":"validation"`, `{"events":["tools/call"],"phase":"request"}`
	cases := map[string]struct {
		members string
		want    *interceptors.Descriptor // nil: left out
		odd     string                   // the member that the log names
	}{
		"a failOpen that is no boolean is false": {head + `,"hooks":[` + hook + `],"failOpen":"true"`, guard(nil), "failOpen"},
		"a version that is a number":             {head + `,"hooks":[` + hook + `],"version":2,"description":"d"`, guard(func(d *interceptors.Descriptor) { d.Description = "d" }), "version"},
		"a compat that is a text":                {head + `,"hooks":[` + hook + `],"compat":"2025-11-25"`, guard(nil), "compat"},
		"a phase that is not known, beside one":  {head + `,"hooks":[{"events":["*"],"phase":"stream"},` + hook + `]`, guard(nil), "hooks"},
		"an event that is none, beside one":      {head + `,"hooks":[{"events":[7,"","tools/call"],"phase":"request"}]`, guard(nil), "hooks"},
		"members that are null":                  {head + `,"hooks":[` + hook + `],"hook":null,"mode":null,"version":null,"failOpen":null,"compat":null,"configSchema":null`, guard(nil), ""},
		"no hook that is known":                  {head + `,"hooks":[{"events":["*"],"phase":"stream"}]`, nil, ""},
		"hooks that are no list":                 {head + `,"hooks":"*"`, nil, ""},
		"a mode that is none":                    {head + `,"hooks":[` + hook + `],"mode":1`, nil, ""},
		"a type that is none":                    {`"name":"guard","type":1,"hooks":[` + hook + `]`, nil, ""},
		"no name":                                {`"name":"","type":"validation","hooks":[` + hook + `]`, nil, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cs := foreignHost(t, interceptors.MethodList, func(json.RawMessage) (string, error) {
				return `{"interceptors":[{` + c.members + `},{"name":"other","type":"mutation","hooks":[]}]}`, nil
			})
			var log strings.Builder
			got, err := interceptors.NewClient(&interceptors.ClientOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}).List(t.Context(), cs, "")
			if err != nil {
				t.Fatal(err)
			}
			want := []interceptors.Descriptor{{Name: "other", Type: interceptors.TypeMutation, Hooks: []interceptors.Hook{}}}
			if c.want != nil {
				want = append([]interceptors.Descriptor{*c.want}, want...)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("List (-want +got)\n%s", diff)
			}
			exact := c.want != nil && c.odd == ""
			if told := strings.Contains(log.String(), "members=["+c.odd+"]") || c.want == nil && strings.Contains(log.String(), "left out"); told == exact {
				t.Errorf("the log says %q", log.String())
			}
			var malformed *interceptors.MalformedError
			if _, err := interceptors.NewClient(&interceptors.ClientOptions{Strict: true}).List(t.Context(), cs, ""); errors.As(err, &malformed) == exact {
				t.Errorf("a strict List says %v", err)
			}
		})
	}
}

// Older drafts name every event of a phase otherwise. Who writes such a name today is told, since it would
// match nothing.
func TestServer_Add_RefusesEventsOfOlderDrafts(t *testing.T) {
	for name, phase := range map[string]interceptors.Phase{"*/request": interceptors.PhaseRequest, "*/response": interceptors.PhaseResponse} {
		err := interceptors.NewServer(nil).Add(validator("t/old", bothPhases(name), allow))
		if want := `name "*" in phase ` + string(phase); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Add of a hook on %s = %v, want %s", name, err, want)
		}
	}
}
