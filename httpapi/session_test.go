package httpapi_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/httpapi"
)

// enter logs in with a token or a code and returns the cookie.
func (w *world) enter(token string) *http.Cookie {
	w.t.Helper()
	s := w.do("", "POST", "/v1/session", `{"token":"`+token+`"}`)
	if s.Status != http.StatusOK {
		w.t.Fatalf("status %d: %s", s.Status, s.Body)
	}
	cookies, err := http.ParseSetCookie(s.Header.Get("Set-Cookie"))
	if err != nil {
		w.t.Fatal(err)
	}
	return cookies
}

// browse sends what a browser with a cookie sends from a page of an origin.
func (w *world) browse(cookie *http.Cookie, origin, method, path, body string) said {
	w.t.Helper()
	req := w.request("", method, path, body)
	req.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value})
	if origin != "" {
		req.Header.Set("Origin", origin)
	}
	return w.send(req)
}

func TestSession(t *testing.T) {
	t.Run("is a cookie that no script and no other site gets", func(t *testing.T) {
		c := newWorld(t).enter(alice)
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || c.Path != "/" {
			t.Errorf("cookie: %v", c)
		}
		secure := newWorld(t, func(o *httpapi.Options) { o.URL = &url.URL{Scheme: "https", Host: "approve.example"} }).enter(alice)
		if !secure.Secure {
			t.Errorf("cookie for https: %v", secure)
		}
	})
	t.Run("decides as its user, from our own page", func(t *testing.T) {
		w := newWorld(t)
		c, r := w.enter(bob), w.asked(`{"amount":10}`)
		w.read(w.browse(c, w.server.URL, "POST", "/v1/approvals/"+r.ID+"/deny", `{"reason":"no"}`), http.StatusOK, &shownEffect{})
		if last := w.effect(r.ID).Approval.Last; last.By != "user:bob" || last.Via != "page" {
			t.Errorf("decided: %+v", last)
		}
	})
	t.Run("decides nothing from elsewhere", func(t *testing.T) {
		w := newWorld(t)
		c, r := w.enter(bob), w.asked(`{"amount":10}`)
		for name, origin := range map[string]string{
			"another site": "https://evil.example", "another port": "http://127.0.0.1:1", "no page at all": "", "a sandboxed page": "null",
		} {
			if s := w.browse(c, origin, "POST", "/v1/approvals/"+r.ID+"/deny", `{"reason":"no"}`); s.Status != http.StatusForbidden {
				t.Errorf("%s: status %d: %s", name, s.Status, s.Body)
			}
		}
		if state := w.effect(r.ID).State; state != effect.StateAwaitingApproval {
			t.Errorf("the effect is %s", state)
		}
	})
	t.Run("holds in another program with the same tokens, and in none without", func(t *testing.T) {
		w := newWorld(t)
		c := w.enter(alice)
		again := newWorldOn(t, w)
		c.Name = "undolog_session_" + again.port()
		again.read(again.browse(c, "", "GET", "/v1/session", ""), http.StatusOK, &struct{}{})
		without := newWorld(t, func(o *httpapi.Options) { o.Approvers = o.Approvers[1:] })
		c.Name = "undolog_session_" + without.port()
		without.refused(without.browse(c, "", "GET", "/v1/session", ""), http.StatusUnauthorized)
	})
	t.Run("cannot be made up", func(t *testing.T) {
		w := newWorld(t)
		a, b := w.enter(alice), w.enter(bob)
		parts, others := strings.Split(a.Value, "."), strings.Split(b.Value, ".")
		for name, value := range map[string]string{
			"nothing": "", "another time": parts[0] + ".99999999999." + parts[2], "another's name": others[0] + "." + parts[1] + "." + parts[2],
			"no seal": parts[0] + "." + parts[1] + ".", "too few parts": parts[0],
		} {
			c := &http.Cookie{Name: a.Name, Value: value}
			if s := w.browse(c, "", "GET", "/v1/session", ""); s.Status != http.StatusUnauthorized {
				t.Errorf("%s: status %d", name, s.Status)
			}
		}
	})
	t.Run("ends with its time", func(t *testing.T) {
		w := newWorld(t, func(o *httpapi.Options) { o.SessionFor = time.Nanosecond })
		w.refused(w.browse(w.enter(alice), "", "GET", "/v1/session", ""), http.StatusUnauthorized)
	})
	t.Run("is taken from the browser by leaving", func(t *testing.T) {
		w := newWorld(t)
		s := w.browse(w.enter(alice), w.server.URL, "DELETE", "/v1/session", "")
		if cookie := s.Header.Get("Set-Cookie"); s.Status != http.StatusOK || !strings.Contains(cookie, "Max-Age=0") {
			t.Errorf("status %d, %s", s.Status, cookie)
		}
	})
}

func TestInvite_isForOnce(t *testing.T) {
	var invited []string
	w := newWorld(t, func(o *httpapi.Options) { o.Invited = func(name string) { invited = append(invited, name) } })
	code := w.api.Invite("user:alice")
	w.enter(code)
	w.refused(w.do("", "POST", "/v1/session", `{"token":"`+code+`"}`), http.StatusUnauthorized)
	w.refused(w.do(code, "GET", "/v1/session", ""), http.StatusUnauthorized)
	if len(invited) != 1 || invited[0] != "user:alice" {
		t.Errorf("told of %v", invited)
	}
}

func (w *world) port() string {
	u, err := url.Parse(w.server.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	return u.Port()
}
