package httpapi_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/httpapi"
	"github.com/undolog/undolog/store"
)

func TestPage(t *testing.T) {
	browser := startBrowser(t)
	for name, test := range map[string]func(*testing.T, context.Context){
		"approves a call":                                   approvesACall,
		"denies a call, with a reason":                      deniesWithAReason,
		"edits a call, and approves what was edited":        editsAndApproves,
		"of two windows one decides, and the other is told": twoWindowsRace,
		"says who was first on a page that is out of date":  clickOnWhatIsDecided,
		"stays open over a restart of the program":          staysOpenOverARestart,
		"settles a lost outcome":                            settlesALostOutcome,
		"lists standing grants, and revokes one":            listsAndRevokesGrants,
		"shows text as text":                                showsTextAsText,
		"goes on with older calls":                          goesOnWithOlderCalls,
		"lets nobody in without a token":                    letsNobodyIn,
	} {
		t.Run(name, func(t *testing.T) { test(t, browser) })
	}
}

func approvesACall(t *testing.T, browser context.Context) {
	w := newWorld(t)
	learn(w, `{"name":"pay","description":"Pays somebody."}`)
	r := w.asked(`{"amount":9007199254740993,"to":"alice"}`)
	p := openWindow(t, browser)
	p.goTo(w.server.URL + "/#login=" + w.api.Invite("user:alice"))
	p.says("#awaiting_approval", "9007199254740993")
	p.click(`li[data-id="` + r.ID + `"] a`)
	p.says("main", "Pays somebody.")
	if text := p.text("main"); !hasAll(text, "agent:ada", "run-7", "time left: 2", "9007199254740993") {
		t.Errorf("the page says %q", text)
	}
	p.click("#approve")
	p.says("#said", "Recorded.")
	p.says("#last", "approved by user:alice")
	if begun := w.call(`{"amount":9007199254740993,"to":"alice"}`); begun.Claim == nil || begun.Record.Approval.Votes[0].Via != "page" {
		t.Errorf("the call is not claimed: %+v", begun.Verdict)
	}
	p.says("#state", "claimed")
}

func deniesWithAReason(t *testing.T, browser context.Context) {
	w := newWorld(t)
	r := w.asked(`{"amount":10}`)
	p := openWindow(t, browser)
	p.logIn(w.server.URL, alice, "/approvals/"+r.ID)
	p.click("#deny")
	p.says("#said", "a reason is missing")
	p.write("#reason", "ask <b>first</b>")
	p.click("#deny")
	p.says("#state", "denied")
	p.says("#last", "denied by user:alice")
	if got := w.effect(r.ID); got.State != effect.StateDenied || got.Reason != "ask <b>first</b>" {
		t.Errorf("the effect is %s: %q", got.State, got.Reason)
	}
	p.click("#reopen")
	p.says("#state", "awaiting approval")
}

func editsAndApproves(t *testing.T, browser context.Context) {
	w := newWorld(t)
	r := w.asked(`{"amount":10,"to":"alice"}`)
	p := openWindow(t, browser)
	p.logIn(w.server.URL, alice, "/approvals/"+r.ID)
	p.click("#edit")
	p.write("#edited", `{"amount":1915883588174806058,`)
	p.says("#notjson", "This is no JSON")
	p.write("#edited", `{"amount":1915883588174806058,"to":"alice"}`)
	p.write("#reason", "too little")
	p.click("#save")
	p.says("#arguments .add", "1915883588174806058")
	p.says("#arguments .del", "10")
	p.says("#last", "edited by user:alice")
	p.click("#approve")
	p.says("#last", "approved by user:alice")
	begun := w.call(`{"amount":10,"to":"alice"}`)
	if begun.Claim == nil || string(begun.Record.Executed()) != `{"amount":1915883588174806058,"to":"alice"}` {
		t.Errorf("what runs is %s", begun.Record.Executed())
	}
}

func twoWindowsRace(t *testing.T, browser context.Context) {
	w := newWorld(t)
	first, second := openWindow(t, browser), openWindow(t, browser)
	first.logIn(w.server.URL, alice, "/")
	second.logIn(w.server.URL, bob, "/")
	r := w.asked(`{"amount":10}`)
	for _, p := range []*window{first, second} {
		p.click(`li[data-id="` + r.ID + `"] a`)
		p.until("the button", `document.getElementById("approve")`)
	}
	done := make(chan bool, 2)
	for _, p := range []*window{first, second} {
		go func() {
			done <- p.is(`document.getElementById("approve")?.click() ?? true`)
		}()
	}
	<-done
	<-done
	first.says("#last", "approved by user:")
	second.says("#last", "approved by user:")
	if votes := w.effect(r.ID).Approval.Votes; len(votes) != 1 {
		t.Errorf("%d votes were recorded, want 1: %+v", len(votes), votes)
	}
}

func clickOnWhatIsDecided(t *testing.T, browser context.Context) {
	w := newWorld(t, func(o *httpapi.Options) { o.MaxStreams = 1 })
	taken := w.stream(alice, "") // so that the page hears of nothing
	taken.next("pending")
	r := w.asked(`{"amount":10}`)
	p := openWindow(t, browser)
	p.logIn(w.server.URL, alice, "/approvals/"+r.ID)
	p.until("the button", `document.getElementById("approve")`)
	w.approve(bob, r.ID)
	p.click("#approve")
	p.says("#said.info", "already approved by user:bob at 2026-05-04 09:00:00 UTC")
	p.says("#last", "approved by user:bob")
}

func staysOpenOverARestart(t *testing.T, browser context.Context) {
	w := newWorld(t)
	s := newSite(w)
	first := w.asked(`{"n":1}`)
	p := openWindow(t, browser)
	p.logIn(s.base, alice, "/")
	p.until("the request", `document.querySelector('[data-id="`+first.ID+`"]')`)
	p.says("#live", "live")
	s.end()
	p.says("#live", "not connected")
	w.approve(bob, first.ID)
	second := w.asked(`{"n":2}`)
	s.start()
	p.says("#live", "live")
	p.until("the new request", `document.querySelector('[data-id="`+second.ID+`"]')`)
	p.says(`[data-id="`+first.ID+`"]`, "approved, not used yet")
	p.click(`li[data-id="` + second.ID + `"] a`)
	p.click("#approve")
	p.says("#last", "approved by user:alice")
}

func settlesALostOutcome(t *testing.T, browser context.Context) {
	w := newWorld(t)
	r := w.lost(`{"amount":10}`)
	p := openWindow(t, browser)
	p.logIn(w.server.URL, alice, "/")
	p.click(`#in_doubt li[data-id="` + r.ID + `"] a`)
	p.click("#committed")
	p.says("#said", "say how you know")
	p.write("#reason", "it is in the ledger")
	p.click("#committed")
	p.says("#state", "committed")
	if got := w.effect(r.ID); got.State != effect.StateCommitted || got.By != "user:alice" {
		t.Errorf("the effect is %s by %s", got.State, got.By)
	}
}

func listsAndRevokesGrants(t *testing.T, browser context.Context) {
	w := newWorld(t)
	const evil = `<img src=x onerror="window.taken=1">`
	give := func(g effect.Grant) *effect.Grant {
		g.Server, g.Tool, g.By, g.Reason = "bank", "pay", "user:bob", "support shift "+evil
		made, err := w.log.Grant(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	some := give(effect.Grant{Tenant: effect.DefaultTenant, Kind: effect.GrantWhere, Where: "args.amount <= 20", Principal: "agent:ada"})
	all := give(effect.Grant{Tenant: effect.DefaultTenant, Kind: effect.GrantTool})
	other := give(effect.Grant{Tenant: "other", Kind: effect.GrantTool})
	p := openWindow(t, browser)
	p.logIn(w.server.URL, alice, "/")
	p.click("#grants")
	p.says(`li[data-id="`+some.ID+`"]`, "where args.amount <= 20")
	if text := p.text("#standing"); !hasAll(text, "pay on bank for agent:ada", "every call", "any caller", "given by user:bob", "support shift <img") {
		t.Errorf("the list says %q", text)
	}
	if p.is(`window.taken === 1 || document.querySelector('[data-id="` + other.ID + `"]')`) {
		t.Error("a reason became part of the page, or another tenant's grant is listed")
	}
	p.click(`li[data-id="` + some.ID + `"] button`)
	p.says("#missing", "Say why it ends.")
	p.write("#reason", "the shift is over")
	p.click(`li[data-id="` + some.ID + `"] button`)
	p.says("#said", "Recorded.")
	p.until("the grant to be gone", `document.querySelector('[data-id="`+all.ID+`"]') && !document.querySelector('[data-id="`+some.ID+`"]')`)
	grants, err := w.log.Grants(t.Context(), &store.GrantFilter{Tenant: effect.DefaultTenant, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range grants {
		if revoked := g.RevokedBy == "user:alice"; revoked != (g.ID == some.ID) {
			t.Errorf("grant %s is revoked by %q", g.ID, g.RevokedBy)
		}
	}
}

// Beyond a thousand the page says that there are more, and shows them.
func goesOnWithOlderCalls(t *testing.T, browser context.Context) {
	w := newWorld(t)
	oldest := w.asked(`{"n":0}`)
	for n := range 1000 {
		w.asked(`{"n":` + strconv.Itoa(n+1) + `}`)
	}
	p := openWindow(t, browser)
	p.logIn(w.server.URL, alice, "/")
	p.says("#more", "These are 1000 of more that wait.")
	p.click("#more a")
	p.says(`li[data-id="`+oldest.ID+`"]`, `{"n":0}`)
	p.says("main h2", "(1)")
}

func showsTextAsText(t *testing.T, browser context.Context) {
	w := newWorld(t)
	const evil = `<img src=x onerror=\"window.taken=1\"><script>window.taken=1</script>`
	learn(w, `{"name":"pay","description":"`+evil+`"}`)
	r := w.asked(`{"note":"`+evil+`"}`, func(c *effect.Call, _ *effect.Contract) { c.Principal, c.Run = evil, evil })
	p := openWindow(t, browser)
	p.logIn(w.server.URL, alice, "/")
	p.says("#awaiting_approval", "<script>")
	p.click(`li[data-id="` + r.ID + `"] a`)
	p.says("#arguments", "<script>")
	if p.is(`window.taken === 1 || document.querySelector("main img, main script") !== null`) {
		t.Error("what the agent sent became part of the page")
	}
}

func letsNobodyIn(t *testing.T, browser context.Context) {
	w := newWorld(t)
	w.asked(`{"amount":10}`)
	p := openWindow(t, browser)
	p.goTo(w.server.URL + "/")
	p.write("#token", "0123456789abcdef")
	p.click("#enter")
	p.says("#said", "no approver's token")
	p.write("#token", alice)
	p.click("#enter")
	p.until("the list", `document.getElementById("awaiting_approval")`)
	p.click("#leave")
	p.until("the form", `document.getElementById("login")`)
	p.goTo(w.server.URL + "/")
	p.until("the form", `document.getElementById("login")`)
	code := w.api.Invite("user:bob")
	p.goTo(w.server.URL + "/#login=" + code)
	p.says("#user", "user:bob")
	other := openWindow(t, browser)
	other.goTo(w.server.URL + "/#login=" + code)
	other.until("the form", `document.getElementById("login")`)
}
