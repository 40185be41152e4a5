package interceptors_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/interceptors"
)

// A guard must not be left out for a hint that cannot be read: nothing would then fail.
func TestClient_List_PrioritiesThatAreNone(t *testing.T) {
	cases := map[string]struct {
		hint  string
		want  *interceptors.Priority
		exact bool
	}{
		"above every int32":         {`2147483648`, &interceptors.Priority{Request: math.MaxInt32, Response: math.MaxInt32}, false},
		"below every int32":         {`{"request":-1e300}`, &interceptors.Priority{Request: math.MinInt32}, false},
		"above every float":         {`1e999`, &interceptors.Priority{Request: math.MaxInt32, Response: math.MaxInt32}, false},
		"a fraction":                {`{"request":1.5,"response":-1.5}`, &interceptors.Priority{Request: 1, Response: -2}, false},
		"a text":                    {`"5"`, nil, false},
		"a text in one phase":       {`{"request":"5","response":7}`, &interceptors.Priority{Response: 7}, false},
		"a list":                    {`[1,2]`, nil, false},
		"an int32 in another form":  {`1.0e3`, &interceptors.Priority{Request: 1000, Response: 1000}, true},
		"null":                      {`null`, nil, true},
		"null in one phase":         {`{"request":null,"response":2}`, &interceptors.Priority{Response: 2}, true},
		"a phase that is not known": {`{"request":2,"later":"x"}`, &interceptors.Priority{Request: 2}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cs := foreignHost(t, interceptors.MethodList, func(json.RawMessage) (string, error) {
				return `{"interceptors":[{"name":"guard","type":"validation","hooks":[],"priorityHint":` + c.hint + `}]}`, nil
			})
			var log strings.Builder
			got, err := interceptors.NewClient(&interceptors.ClientOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}).List(t.Context(), cs, "")
			if err != nil {
				t.Fatal(err)
			}
			want := []interceptors.Descriptor{{Name: "guard", Type: interceptors.TypeValidation, Hooks: []interceptors.Hook{}, PriorityHint: c.want}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("List (-want +got)\n%s", diff)
			}
			if told := strings.Contains(log.String(), "interceptor=guard"); told == c.exact {
				t.Errorf("exact %t, and the log says %q", c.exact, log.String())
			}
			var malformed *interceptors.MalformedError
			_, err = interceptors.NewClient(&interceptors.ClientOptions{Strict: true}).List(t.Context(), cs, "")
			if errors.As(err, &malformed) == c.exact {
				t.Errorf("exact %t, and a strict List says %v", c.exact, err)
			}
		})
	}
}
