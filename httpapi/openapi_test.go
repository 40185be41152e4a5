package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/httpapi"
)

// document is as much of the description as tests read.
type document struct {
	OpenAPI string
	Paths   map[string]map[string]struct {
		RequestBody struct {
			Content map[string]struct{ Schema schemaRef }
		}
		Responses map[string]struct {
			Content map[string]struct{ Schema schemaRef }
		}
	}
}

type schemaRef struct {
	Ref string `json:"$ref"`
}

func readDocument(t *testing.T) document {
	t.Helper()
	var d document
	if err := json.Unmarshal(httpapi.OpenAPI(), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// What is described is what is served: every path and method, and no others.
func TestOpenAPI_namesWhatIsServed(t *testing.T) {
	var described []string
	for path, methods := range readDocument(t).Paths {
		for method := range methods {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(described)
	if diff := cmp.Diff(httpapi.Routes(), described); diff != "" {
		t.Errorf("routes (-served +described)\n%s", diff)
	}
}

func TestOpenAPI_isServedToAnybody(t *testing.T) {
	w := newWorld(t)
	if s := w.do("", "GET", "/openapi.json", ""); s.Status != http.StatusOK || !bytes.Equal(s.Body, httpapi.OpenAPI()) {
		t.Errorf("status %d", s.Status)
	}
}

// checker validates bodies by the description.
type checker struct {
	t        *testing.T
	doc      document
	compiler *jsonschema.Compiler
}

func newChecker(t *testing.T) *checker {
	t.Helper()
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(httpapi.OpenAPI()))
	if err != nil {
		t.Fatal(err)
	}
	c := &checker{t: t, doc: readDocument(t), compiler: jsonschema.NewCompiler()}
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource("mem:openapi.json", whole); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *checker) validate(what string, ref schemaRef, body []byte) {
	c.t.Helper()
	if ref.Ref == "" {
		c.t.Errorf("%s is not described", what)
		return
	}
	schema, err := c.compiler.Compile("mem:openapi.json" + ref.Ref)
	if err != nil {
		c.t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		c.t.Fatalf("%s: %v in %s", what, err, body)
	}
	if err := schema.Validate(value); err != nil {
		c.t.Errorf("%s is not as described: %v\n%s", what, err, body)
	}
}

// Real requests and answers are as described.
func TestOpenAPI_describesRealAnswers(t *testing.T) {
	w, c := newWorld(t), newChecker(t)
	learn(w, `{"name":"pay","description":"Pays somebody."}`)
	w.call(`{"n":0}`, func(_ *effect.Call, c *effect.Contract) { c.Approve = false })
	asked, other, lost := w.asked(`{"n":1}`), w.asked(`{"n":2}`), w.lost(`{"n":3}`)
	digest := func(r *effect.Record) string { return r.Approval.Complete.String() }
	var g struct{ ID string }
	grant := w.do(alice, "POST", "/v1/grants", `{"effect":"`+asked.ID+`","for":"1h","reason":"x","principal":"agent:ada"}`)
	w.read(grant, http.StatusCreated, &g)
	const nowhere = "0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42"
	for _, r := range []struct {
		token, method, path, id, body string
		status                        int
	}{
		{alice, "GET", "/v1/session", "", "", 200},
		{"", "GET", "/v1/session", "", "", 401},
		{"", "POST", "/v1/session", "", `{"token":"` + alice + `"}`, 200},
		{alice, "DELETE", "/v1/session", "", "", 200},
		{alice, "GET", "/v1/approvals", "", "", 200},
		{alice, "GET", "/v1/approvals/{id}", asked.ID, "", 200},
		{alice, "POST", "/v1/approvals/{id}/extend", asked.ID, `{"for":"2h"}`, 200},
		{alice, "POST", "/v1/approvals/{id}/edit", asked.ID, `{"reason":"x","arguments":{"n":9}}`, 200},
		{alice, "GET", "/v1/approvals/{id}", asked.ID, "", 200},
		{alice, "POST", "/v1/approvals/{id}/approve", asked.ID, `{"digest":"` + digest(asked) + `"}`, 403},
		{alice, "POST", "/v1/approvals/{id}/approve", other.ID, `{"digest":"` + digest(other) + `","reason":"fine"}`, 200},
		{bob, "POST", "/v1/approvals/{id}/approve", other.ID, `{"digest":"` + digest(other) + `"}`, 409},
		{bob, "POST", "/v1/approvals/{id}/withdraw", other.ID, `{"reason":"wait"}`, 200},
		{bob, "POST", "/v1/approvals/{id}/reopen", other.ID, `{}`, 200},
		{bob, "POST", "/v1/approvals/{id}/deny", other.ID, `{"reason":"no"}`, 200},
		{bob, "POST", "/v1/approvals/decide", "", `{"decisions":[{"id":"` + other.ID + `","decision":"deny","digest":"` + digest(other) + `","reason":"no"},{"id":"` + asked.ID + `","decision":"deny","digest":"` + w.shown(alice, asked.ID).Approval.Digest + `","reason":"no"}]}`, 200},
		{alice, "GET", "/v1/grants", "", "", 200},
		{alice, "POST", "/v1/grants", "", `{"reason":"x"}`, 422},
		{alice, "POST", "/v1/grants/{id}/revoke", g.ID, `{"reason":"over"}`, 200},
		{alice, "POST", "/v1/grants/{id}/revoke", g.ID, `{"reason":"over"}`, 409},
		{alice, "GET", "/v1/pending", "", "", 200},
		{alice, "POST", "/v1/effects/{id}/resolve", lost.ID, `{"outcome":"committed","reason":"seen","result":{"content":[]}}`, 200},
		{alice, "POST", "/v1/effects/{id}/resolve", lost.ID, `{"outcome":"not_applied","reason":"seen"}`, 409},
		{alice, "POST", "/v1/effects/{id}/again", lost.ID, `{"reason":"once more"}`, 200},
		{alice, "GET", "/v1/effects", "", "", 200},
		{alice, "GET", "/v1/effects/{id}", lost.ID, "", 200},
		{alice, "GET", "/v1/effects/{id}", nowhere, "", 404},
	} {
		s := w.do(r.token, r.method, strings.ReplaceAll(r.path, "{id}", r.id), r.body)
		what := fmt.Sprintf("%s %s", r.method, r.path)
		if s.Status != r.status {
			t.Errorf("%s: status %d, want %d: %s", what, s.Status, r.status, s.Body)
			continue
		}
		op := c.doc.Paths[r.path][strings.ToLower(r.method)]
		c.validate(fmt.Sprintf("answer %d to %s", s.Status, what), op.Responses[fmt.Sprint(s.Status)].Content["application/json"].Schema, s.Body)
		if r.body != "" && s.Status < 300 {
			c.validate("body of "+what, op.RequestBody.Content["application/json"].Schema, []byte(r.body))
		}
	}
}
