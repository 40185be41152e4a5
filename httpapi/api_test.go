package httpapi_test

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/httpapi"
	"github.com/undolog/undolog/store"
)

// learn lets the log know a definition of the tool pay.
func learn(w *world, definition string) {
	w.t.Helper()
	digest, err := effect.DigestOf([]byte(definition))
	if err != nil {
		w.t.Fatal(err)
	}
	tool := &store.Tool{Tenant: effect.DefaultTenant, Server: "payments", Name: "pay", Digest: digest, Definition: []byte(definition)}
	if _, err := w.log.LearnTool(w.t.Context(), tool); err != nil {
		w.t.Fatal(err)
	}
}

func TestNew_refusesApproversThatAreNoUsers(t *testing.T) {
	for _, name := range []string{"agent:ada", "ada", "user:", ""} {
		if _, err := httpapi.New(nil, &httpapi.Options{Approvers: []httpapi.Approver{{Name: name}}}); err == nil {
			t.Errorf("%q may approve", name)
		}
	}
	if _, err := httpapi.New(nil, &httpapi.Options{}); err == nil {
		t.Error("nobody may approve, and that is well")
	}
}

func TestRequests_thatAreRefused(t *testing.T) {
	w := newWorld(t, func(o *httpapi.Options) { o.MaxBody = 1000 })
	id := w.asked(`{"amount":10}`).ID
	deny := "/v1/approvals/" + id + "/deny"
	for name, c := range map[string]struct {
		method, path, body string
		change             func(*http.Request)
		status             int
	}{
		"no token":                 {"GET", "/v1/pending", "", without("Authorization"), 401},
		"an unknown token":         {"GET", "/v1/pending", "", with("Authorization", "Bearer 0123456789abcdef"), 401},
		"another scheme":           {"GET", "/v1/pending", "", with("Authorization", "Basic "+alice), 401},
		"a host name not ours":     {"GET", "/v1/pending", "", func(r *http.Request) { r.Host = "evil.example" }, 403},
		"a page of others":         {"POST", deny, `{"reason":"x"}`, with("Origin", "https://evil.example"), 403},
		"a page of another site":   {"POST", deny, `{"reason":"x"}`, with("Sec-Fetch-Site", "cross-site"), 403},
		"a form":                   {"POST", deny, `reason=x`, with("Content-Type", "application/x-www-form-urlencoded"), 415},
		"text":                     {"POST", deny, `{"reason":"x"}`, with("Content-Type", "text/plain"), 415},
		"no content type":          {"POST", deny, `{"reason":"x"}`, without("Content-Type"), 415},
		"no JSON":                  {"POST", deny, `{"reason":`, nil, 400},
		"two JSON values":          {"POST", deny, `{"reason":"x"}{}`, nil, 400},
		"a list":                   {"POST", deny, `[]`, nil, 422},
		"an unknown field":         {"POST", deny, `{"reason":"x","by":"user:bob"}`, nil, 422},
		"a doubled field":          {"POST", deny, `{"reason":"x","reason":"y"}`, nil, 400},
		"a field of another kind":  {"POST", deny, `{"reason":7}`, nil, 422},
		"too large":                {"POST", deny, `{"reason":"` + strings.Repeat("x", 1000) + `"}`, nil, 413},
		"no such effect":           {"POST", "/v1/approvals/0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42/deny", `{"reason":"x"}`, nil, 404},
		"no id":                    {"GET", "/v1/effects/x", "", nil, 404},
		"no such path":             {"GET", "/v1/nothing", "", nil, 404},
		"another method":           {"GET", deny, "", nil, 405},
		"a state that is none":     {"GET", "/v1/effects?state=done", "", nil, 422},
		"a limit that is none":     {"GET", "/v1/effects?limit=ten", "", nil, 422},
		"a limit too large":        {"GET", "/v1/effects?limit=100000", "", nil, 422},
		"a stream from nowhere":    {"GET", "/v1/events", "", with("Last-Event-ID", "x"), 400},
		"a decision that is none":  {"POST", "/v1/approvals/" + id + "/destroy", `{}`, nil, 404},
		"decisions on nothing":     {"POST", "/v1/approvals/decide", `{"decisions":[]}`, nil, 422},
		"a login with no token":    {"POST", "/v1/session", `{"token":""}`, without("Authorization"), 401},
		"an approver of no digest": {"POST", "/v1/approvals/" + id + "/approve", `{"digest":"b3:12"}`, nil, 422},
	} {
		t.Run(name, func(t *testing.T) {
			req := w.request(alice, c.method, c.path, c.body)
			if c.change != nil {
				c.change(req)
			}
			if got := w.refused(w.send(req), c.status); got.Outcome == "" || got.Message == "" {
				t.Errorf("it is not said why: %+v", got)
			}
		})
	}
	if state := w.effect(id).State; state != effect.StateAwaitingApproval {
		t.Errorf("the effect is %s", state)
	}
}

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func without(name string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Del(name) }
}

func TestAnswers_letNoPageOfOthersIn(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/", "/v1/pending", "/openapi.json", "/page/main.js", "/v1/nothing"} {
		req := w.request(alice, "GET", path, "")
		req.Header.Set("Origin", "https://evil.example")
		header := w.send(req).Header
		if got := header.Get("Access-Control-Allow-Origin"); got != "" {
			t.Errorf("%s lets %s read it", path, got)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
		} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if policy := header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; script-src 'self';") {
			t.Errorf("%s: policy is %q", path, policy)
		}
	}
}

func TestHosts_areOursByAddressOrByURL(t *testing.T) {
	w := newWorld(t, func(o *httpapi.Options) { o.URL = &url.URL{Scheme: "https", Host: "approve.example"} })
	for host, status := range map[string]int{
		"127.0.0.1:8480": 200, "[::1]:8480": 200, "localhost:8480": 200, "192.0.2.7": 200, "approve.example": 200, "APPROVE.example": 200,
		"approve.example:81": 403, "evil.example": 403, "": 200,
	} {
		req := w.request(alice, "GET", "/v1/pending", "")
		req.Host = host
		if got := w.send(req).Status; got != status {
			t.Errorf("host %q: status %d, want %d", host, got, status)
		}
	}
}

func TestGrants(t *testing.T) {
	w := newWorld(t)
	learn(w, `{"name":"pay"}`)
	r := w.asked(`{"amount":10}`)
	var g struct {
		ID, Kind, Definition, By string
		Active                   bool
	}
	give := `{"effect":"` + r.ID + `","for":"8h","reason":"support shift"}`
	w.read(w.do(alice, "POST", "/v1/grants", give), http.StatusCreated, &g)
	if g.Kind != "exact" || g.By != "user:alice" || !g.Active || g.Definition == "" {
		t.Errorf("granted: %+v", g)
	}
	for _, body := range []string{`{}`, `{"reason":" "}`} {
		if p := w.refused(w.do(bob, "POST", "/v1/grants/"+g.ID+"/revoke", body), http.StatusUnprocessableEntity); p.Pointer != "/reason" {
			t.Errorf("revoked with %s: %+v, want /reason missing", body, p)
		}
	}
	w.read(w.do(bob, "POST", "/v1/grants/"+g.ID+"/revoke", `{"reason":"over"}`), http.StatusOK, &g)
	if g.Active {
		t.Error("the grant holds although it was revoked")
	}
	if p := w.refused(w.do(alice, "POST", "/v1/grants/"+g.ID+"/revoke", `{"reason":"over"}`), http.StatusConflict); p.By != "user:bob" {
		t.Errorf("revoked twice: %+v", p)
	}
	var list struct{ Grants []struct{ ID string } }
	w.read(w.do(alice, "GET", "/v1/grants", ""), http.StatusOK, &list)
	if len(list.Grants) != 1 || list.Grants[0].ID != g.ID {
		t.Errorf("listed: %+v", list)
	}
	w.read(w.do(alice, "GET", "/v1/grants?active=true", ""), http.StatusOK, &list)
	if len(list.Grants) != 0 {
		t.Errorf("active: %+v", list)
	}
	for name, body := range map[string]string{
		"no calls":                 `{"server":"payments","tool":"pay","for":"1h","reason":"x"}`,
		"two ways":                 `{"server":"payments","tool":"pay","any":true,"where":"true","for":"1h","reason":"x"}`,
		"no tool":                  `{"any":true,"for":"1h","reason":"x"}`,
		"no reason":                `{"server":"payments","tool":"pay","any":true,"for":"1h"}`,
		"no time":                  `{"server":"payments","tool":"pay","any":true,"reason":"x"}`,
		"a condition that is none": `{"server":"payments","tool":"pay","where":"args.amount <","for":"1h","reason":"x"}`,
	} {
		t.Run(name, func(t *testing.T) {
			w.refused(w.do(alice, "POST", "/v1/grants", body), http.StatusUnprocessableEntity)
		})
	}
}

func TestResolve(t *testing.T) {
	w := newWorld(t)
	r := w.lost(`{"amount":10}`)
	path := "/v1/effects/" + r.ID + "/resolve"
	w.refused(w.do(alice, "POST", path, `{"outcome":"committed"}`), http.StatusUnprocessableEntity)
	w.refused(w.do(alice, "POST", path, `{"outcome":"maybe","reason":"x"}`), http.StatusUnprocessableEntity)
	var now shownEffect
	w.read(w.do(alice, "POST", path, `{"outcome":"committed","reason":"it is in the ledger"}`), http.StatusOK, &now)
	if now.State != effect.StateCommitted || now.By != "user:alice" {
		t.Errorf("resolved: %+v", now)
	}
	late := w.refused(w.do(bob, "POST", path, `{"outcome":"not_applied","reason":"no"}`), http.StatusConflict)
	if late.By != "user:alice" || late.State != effect.StateCommitted {
		t.Errorf("resolved twice: %+v", late)
	}
	w.read(w.do(bob, "POST", "/v1/effects/"+r.ID+"/again", `{"reason":"once more"}`), http.StatusOK, &now)
	if begun := w.call(`{"amount":10}`, func(_ *effect.Call, c *effect.Contract) { c.Approve = false }); begun.Claim == nil {
		t.Errorf("the call does not run again: %+v", begun.Verdict)
	}
}

// Who decides is the holder of the token: a body has no word for it.
func TestRequests_thatNameSomebodyElseAreRefused(t *testing.T) {
	w := newWorld(t)
	asked, lost := w.asked(`{"n":1}`), w.lost(`{"n":2}`)
	for path, body := range map[string]string{
		"/v1/effects/" + lost.ID + "/resolve":    `{"outcome":"committed","reason":"seen","by":"user:mallory"}`,
		"/v1/effects/" + lost.ID + "/again":      `{"reason":"once more","by":"user:mallory"}`,
		"/v1/approvals/" + asked.ID + "/deny":    `{"reason":"no","by":"user:mallory"}`,
		"/v1/grants":                             `{"server":"payments","tool":"pay","any":true,"for":"1h","reason":"x","by":"user:mallory"}`,
		"/v1/grants/" + asked.ID + "/revoke":     `{"reason":"over","by":"user:mallory"}`,
		"/v1/approvals/" + asked.ID + "/approve": `{"digest":"` + w.shown(alice, asked.ID).Approval.Digest + `","by":"user:mallory"}`,
	} {
		if p := w.refused(w.do(alice, "POST", path, body), http.StatusUnprocessableEntity); p.Pointer != "/by" {
			t.Errorf("%s: %+v, want /by refused", path, p)
		}
	}
	for _, r := range []*effect.Record{asked, lost} {
		if now := w.effect(r.ID); now.By != "" || now.Approval != nil && now.Approval.Last != nil {
			t.Errorf("effect %s was moved by %q", r.ID, now.By)
		}
	}
}

func TestPending_listsAllThatWaits(t *testing.T) {
	w := newWorld(t)
	asked, lost := w.asked(`{"n":1}`), w.lost(`{"n":2}`)
	var list struct{ Effects []shownEffect }
	w.read(w.do(alice, "GET", "/v1/pending", ""), http.StatusOK, &list)
	states := map[string]effect.State{}
	for _, e := range list.Effects {
		states[e.ID] = e.State
	}
	if len(states) != 2 || states[asked.ID] != effect.StateAwaitingApproval || states[lost.ID] != effect.StateInDoubt {
		t.Errorf("pending: %v", states)
	}
	w.read(w.do(carol, "GET", "/v1/pending", ""), http.StatusOK, &list)
	if len(list.Effects) != 0 {
		t.Errorf("another tenant sees %v", list.Effects)
	}
}

func TestLists_arePaged(t *testing.T) {
	w := newWorld(t)
	for _, n := range []string{"1", "2", "3", "4"} {
		w.asked(`{"n":` + n + `}`)
	}
	w.call(`{"n":5}`, func(_ *effect.Call, c *effect.Contract) { c.Approve = false })
	for path, want := range map[string]int{
		"/v1/effects?state=awaiting_approval&limit=2": 4, "/v1/effects?limit=5": 5, "/v1/effects?limit=2": 5,
		"/v1/pending?limit=3": 4, "/v1/pending?limit=4": 4, "/v1/pending?tool=p*&limit=1": 4, "/v1/pending?server=bank": 0, "/v1/approvals?limit=3": 4,
	} {
		seen, pages := map[string]bool{}, 0
		for next := "0"; next != ""; pages++ {
			var page struct {
				Effects []shownEffect
				Next    *int64
			}
			mark := "?"
			if strings.Contains(path, "?") {
				mark = "&"
			}
			w.read(w.do(alice, "GET", path+mark+"before="+next, ""), http.StatusOK, &page)
			for _, e := range page.Effects {
				seen[e.ID] = true
			}
			if next = ""; page.Next != nil {
				next = strconv.FormatInt(*page.Next, 10)
			}
			if len(page.Effects) == 0 && pages > 0 {
				t.Errorf("%s: an empty page is announced", path)
			}
		}
		if len(seen) != want {
			t.Errorf("%s: %d of %d effects were listed", path, len(seen), want)
		}
	}
	w.refused(w.do(alice, "GET", "/v1/pending?state=in_doubt", ""), http.StatusUnprocessableEntity)
}

func TestLists_sayWhatIsPruned(t *testing.T) {
	w := newWorld(t)
	r := w.asked(`{"amount":10}`)
	w.do(alice, "POST", "/v1/approvals/"+r.ID+"/deny", `{"reason":"no"}`)
	w.clock.pass(time.Hour)
	if _, err := w.log.Prune(t.Context(), &store.Pruning{Before: w.clock.now()}); err != nil {
		t.Fatal(err)
	}
	var list struct{ Effects []shownEffect }
	w.read(w.do(alice, "GET", "/v1/effects", ""), http.StatusOK, &list)
	if len(list.Effects) != 1 || list.Effects[0].Preview != "(pruned)" {
		t.Errorf("listed: %+v", list.Effects)
	}
}

func TestLists_leaveOutLargePayloads(t *testing.T) {
	w := newWorld(t)
	r := w.asked(`{"text":"` + strings.Repeat("x", 20_000) + `"}`)
	var list struct{ Effects []shownEffect }
	w.read(w.do(alice, "GET", "/v1/pending", ""), http.StatusOK, &list)
	if len(list.Effects) != 1 || list.Effects[0].Arguments != nil || !strings.HasPrefix(list.Effects[0].Preview, `{"text":"xxx`) {
		t.Errorf("listed: %.300s", list.Effects[0].Arguments)
	}
	if e := w.shown(alice, r.ID); len(e.Arguments) < 20_000 {
		t.Errorf("shown: %d bytes of arguments", len(e.Arguments))
	}
}
