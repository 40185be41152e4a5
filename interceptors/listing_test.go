package interceptors_test

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/interceptors"
)

func TestClient_Listing_TTL(t *testing.T) {
	says := func(ttl time.Duration) interceptors.Listing { return interceptors.Listing{TTL: ttl, HasTTL: true} }
	cases := map[string]struct {
		pages []string // members of each page
		want  interceptors.Listing
	}{
		"is what the host says":          {[]string{`"ttlMs":1500`}, says(1500 * time.Millisecond)},
		"may be nothing":                 {[]string{`"ttlMs":0`}, says(0)},
		"is the shortest of all pages":   {[]string{`"ttlMs":9000`, `"x":1`, `"ttlMs":2000`}, says(2 * time.Second)},
		"may be any number":              {[]string{`"ttlMs":1e3`}, says(time.Second)},
		"that is not there is not known": {[]string{`"x":1`}, interceptors.Listing{}},
		"that is negative says nothing":  {[]string{`"ttlMs":-1`}, interceptors.Listing{}},
		"that is a text says nothing":    {[]string{`"ttlMs":"60000"`}, interceptors.Listing{}},
		"that is null says nothing":      {[]string{`"ttlMs":null`}, interceptors.Listing{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cs := foreignHost(t, interceptors.MethodList, func(params json.RawMessage) (string, error) {
				var p struct{ Cursor string }
				if err := json.Unmarshal(params, &p); err != nil {
					return "", err
				}
				page, _ := strconv.Atoi("0" + p.Cursor)
				next := ""
				if page+1 < len(c.pages) {
					next = `"nextCursor":"` + strconv.Itoa(page+1) + `",`
				}
				return `{"interceptors":[],` + next + c.pages[page] + `}`, nil
			})
			got, err := interceptors.NewClient(nil).Listing(t.Context(), cs, "")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, *got); diff != "" {
				t.Errorf("Listing (-want +got)\n%s", diff)
			}
		})
	}
	t.Run("of ages is a long one", func(t *testing.T) {
		cs := foreignHost(t, interceptors.MethodList, func(json.RawMessage) (string, error) {
			return `{"interceptors":[],"ttlMs":1e300}`, nil
		})
		got, err := interceptors.NewClient(nil).Listing(t.Context(), cs, "")
		if err != nil || !got.HasTTL || got.TTL < 365*24*time.Hour {
			t.Errorf("Listing = %+v, %v", got, err)
		}
	})
}
