package drivertest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

func (p *process) list(f *store.Filter) []*effect.Record {
	p.t.Helper()
	records, err := p.List(context.Background(), f)
	if err != nil {
		p.t.Fatalf("List: %v", err)
	}
	return records
}

// flushed writes a last note through the log and waits until it can be read: everything noted before it
// has been written then.
func (p *process) flushed(w *world) {
	p.t.Helper()
	tenant := fmt.Sprintf("flush-%s", p.Owner())
	events, err := p.Events(context.Background(), tenant, 0, 1000)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Note(effect.Event{Tenant: tenant, Kind: effect.EventUnmatched})
	deadline := time.Now().Add(time.Minute) // of a machine that is busy with many tests
	for before := len(events); len(events) == before; {
		if time.Now().After(deadline) {
			p.t.Fatal("a note was not written within a minute")
		}
		if events, err = p.Events(context.Background(), tenant, 0, 1000); err != nil {
			p.t.Fatal(err)
		}
	}
}

func testNotes(t *testing.T, h Harness) {
	t.Run("a read is recorded with its answer and matches nothing", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		at := w.clock.Now()
		read := &effect.Record{
			Principal: "agent:a", Server: "payments", Tool: "get_charge", Rule: effect.RuleWindow, Scope: "agent:a",
			Arguments: []byte(`{"id":"ch_1"}`), State: effect.StateCommitted, CreatedAt: at.Add(-time.Second), ChangedAt: at,
			Answer: effect.Answer{Kind: effect.AnswerResult, Body: []byte(`{"content":[]}`)}, Source: "annotations",
		}
		p.RecordRead(read)
		p.RecordRead(read)
		p.flushed(w)
		records := p.list(&store.Filter{Tenant: "default"})
		if len(records) != 2 {
			t.Fatalf("%d effects, want 2", len(records))
		}
		want := *read
		want.ID, want.Seq, want.Tenant, want.Tier = records[1].ID, records[1].Seq, "default", effect.TierRead
		want.Owner, want.Generation, want.Attempt, want.Ordinal = p.Owner(), 1, 1, 1
		if diff := cmp.Diff(&want, records[1]); diff != "" {
			t.Errorf("read (-want +got)\n%s", diff)
		}
	})
	t.Run("deliveries, events and reads are written by Close", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.processWith(&store.Options{Now: w.clock.Now, FlushEvery: time.Hour})
		r := p.done(charge(), contract())
		p.Delivered(r.Tenant, r.ID)
		p.Note(effect.Event{Effect: r.ID, Kind: effect.EventRefused, Detail: []byte(`{"why":1}`)})
		for i := range 300 { // more than one group
			p.RecordRead(&effect.Record{Server: "s", Tool: fmt.Sprint("t", i), Rule: effect.RuleNone, State: effect.StateCommitted})
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		q := w.process()
		shown := q.show("default", r.ID)
		if !shown.Record.Delivered {
			t.Error("the delivery is lost")
		}
		if n := len(q.list(&store.Filter{Tenant: "default", Limit: 1000})); n != 301 {
			t.Errorf("%d effects, want 301", n)
		}
		kinds := map[string]int{}
		for _, ev := range shown.Events {
			kinds[ev.Kind]++
		}
		if diff := cmp.Diff(map[string]int{effect.EventDelivered: 1, effect.EventRefused: 1}, kinds); diff != "" {
			t.Errorf("events (-want +got)\n%s", diff)
		}
	})
	t.Run("a bad note does not take the others with it", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		p.Note(effect.Event{Kind: ""}) // refused by the schema
		p.Note(effect.Event{Kind: effect.EventRefused})
		p.flushed(w)
		events, err := p.Events(t.Context(), "default", 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		assertKinds(t, events, effect.EventRefused)
	})
	t.Run("40,000 replays write nothing and overflow nothing", func(t *testing.T) {
		p := newWorld(t, h).process()
		r := p.done(charge(), contract())
		bp := params(t, charge(), contract())
		for range Scale(40_000) {
			p.Delivered(r.Tenant, r.ID)
			if begun := p.beginParams(bp); begun.Verdict.Action != effect.ActReplay {
				t.Fatalf("Begin = %s", begun.Verdict.Action)
			}
		}
		shown := p.show("default", r.ID)
		if len(shown.Transitions) != 2 || len(shown.Events) != 1 {
			t.Errorf("%d transitions and %d events", len(shown.Transitions), len(shown.Events))
		}
	})
	t.Run("the last events are listed from the newest, and by page", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		for _, kind := range []string{"a", "b", "c"} {
			p.Note(effect.Event{Kind: kind})
			p.Note(effect.Event{Kind: "other", Tenant: "tenant-2"})
		}
		p.flushed(w)
		for _, c := range []struct {
			before int64
			limit  int
			want   []string
		}{{0, 2, []string{"c", "b"}}, {0, 0, []string{"c", "b", "a"}}} {
			last, err := p.driver.LastEvents(t.Context(), "default", c.before, c.limit)
			if err != nil {
				t.Fatal(err)
			}
			assertKinds(t, last, c.want...)
		}
		last, err := p.driver.LastEvents(t.Context(), "default", 0, 2)
		if err != nil {
			t.Fatal(err)
		}
		rest, err := p.driver.LastEvents(t.Context(), "default", last[1].Seq, 2)
		if err != nil {
			t.Fatal(err)
		}
		assertKinds(t, rest, "a")
	})
	t.Run("events since a time are read no further back than they can be", func(t *testing.T) {
		const many, wanted = 3500, 1500
		w := newWorld(t, h)
		p := w.process()
		for i := range many {
			if i == many-wanted {
				p.flushed(w)
				w.clock.advance(24 * time.Hour)
			}
			p.Note(effect.Event{Kind: effect.EventStopped})
		}
		late := w.clock.Now().Add(-30 * time.Minute) // written after what happened later
		p.Note(effect.Event{Kind: effect.EventStopped, At: late})
		p.flushed(w)
		for name, c := range map[string]struct {
			since      time.Time
			seen, read int
			enough     bool
		}{
			"the last hour": {since: w.clock.Now().Add(-time.Hour), seen: wanted + 1, read: 3000},
			"all":           {seen: many + 1, read: many + 1},
			"a few":         {seen: 1000, read: 1000, enough: true},
		} {
			seen, read := 0, 0
			err := p.EventsSince(t.Context(), "default", c.since, func(page []effect.Event) time.Time {
				for _, ev := range page {
					if read++; !ev.At.Before(c.since) {
						seen++
					}
				}
				if c.enough {
					return w.clock.Now().Add(24 * time.Hour)
				}
				return c.since
			})
			if err != nil || seen != c.seen || read > c.read {
				t.Errorf("%s: %d of %d events read, %v; want %d of at most %d", name, seen, read, err, c.seen, c.read)
			}
		}
	})
	t.Run("events are listed in order and by page", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		for _, kind := range []string{"a", "b", "c"} {
			p.Note(effect.Event{Kind: kind, Server: "s", Tool: "t", Principal: "p", Detail: []byte(`{"k":1}`)})
		}
		p.flushed(w)
		first, err := p.Events(t.Context(), "default", 0, 2)
		if err != nil {
			t.Fatal(err)
		}
		assertKinds(t, first, "a", "b")
		rest, err := p.Events(t.Context(), "default", first[1].Seq, 2)
		if err != nil {
			t.Fatal(err)
		}
		want := []effect.Event{{
			Seq: rest[0].Seq, At: w.clock.Now(), Tenant: "default", Kind: "c", Server: "s", Tool: "t", Principal: "p", Detail: []byte(`{"k":1}`),
		}}
		if diff := cmp.Diff(want, rest); diff != "" {
			t.Errorf("events (-want +got)\n%s", diff)
		}
	})
}

func testQuery(t *testing.T, h Harness) {
	w := newWorld(t, h)
	p, dead := w.process(), w.process()
	c := contract()
	ids := map[string]string{}
	names := map[string]string{}
	note := func(name, id string) { ids[name], names[id] = id, name }

	note("committed", p.done(charge(run("r1")), c).ID)
	w.clock.advance(time.Minute)
	since := w.clock.Now()
	failed := p.begin(charge(tool("charge_fast"), run("r2")), c)
	p.settle(failed.Claim, c, rpcError(`{"code":-32602,"message":"x"}`))
	note("failed", failed.Claim.Effect)
	note("dead", dead.begin(charge(tool("send[1]")), c).Claim.Effect)
	w.clock.advance(ttl)
	note("live", p.begin(charge(tool("sendX"), func(c *effect.Call) { c.Server = "mail" }), c).Claim.Effect)
	lostClaim := p.begin(charge(tool("refund")), c).Claim
	p.settle(lostClaim, c, lost)
	note("lost", lostClaim.Effect)
	waitingClaim := p.begin(charge(tool("transfer")), c).Claim
	p.settle(waitingClaim, c, waits("s"))
	note("waiting", waitingClaim.Effect)
	p.RecordRead(&effect.Record{Principal: "agent:a", Server: "payments", Tool: "get", Rule: effect.RuleWindow, State: effect.StateInDoubt})
	p.flushed(w)

	seq := func(name string) int64 { return p.show("default", ids[name]).Record.Seq }
	listed := func(records []*effect.Record) (got []string) {
		for _, r := range records {
			if r.Tier == effect.TierRead {
				got = append(got, "read")
			} else {
				got = append(got, names[r.ID])
			}
		}
		return got
	}
	for name, tc := range map[string]struct {
		filter store.Filter
		want   []string
	}{
		"all, newest first":        {store.Filter{}, []string{"read", "waiting", "lost", "live", "dead", "failed", "committed"}},
		"by run":                   {store.Filter{Run: "r2"}, []string{"failed"}},
		"by server":                {store.Filter{Server: "mail"}, []string{"live"}},
		"by tool":                  {store.Filter{Tool: "refund"}, []string{"lost"}},
		"by a glob":                {store.Filter{Tool: "charge*"}, []string{"failed", "committed"}},
		"by a glob of one":         {store.Filter{Tool: "send?"}, []string{"live"}},
		"brackets are themselves":  {store.Filter{Tool: "send[1]"}, []string{"dead"}},
		"in doubt, derived too":    {store.Filter{States: []effect.State{effect.StateInDoubt}}, []string{"read", "lost", "dead"}},
		"claimed, live only":       {store.Filter{States: []effect.State{effect.StateClaimed}}, []string{"live"}},
		"by two states":            {store.Filter{States: []effect.State{effect.StateCommitted, effect.StateFailed}}, []string{"failed", "committed"}},
		"since":                    {store.Filter{Since: since}, []string{"read", "waiting", "lost", "live", "dead", "failed"}},
		"limited":                  {store.Filter{Limit: 2}, []string{"read", "waiting"}},
		"the page before":          {store.Filter{Before: seq("dead"), Limit: 1}, []string{"failed"}},
		"the page after, in order": {store.Filter{After: seq("committed"), Limit: 2}, []string{"dead", "failed"}},
		"all of it at once":        {store.Filter{Tool: "*e*", Server: "payments", States: []effect.State{effect.StateInDoubt}, Before: seq("lost")}, []string{"dead"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.filter.Tenant = "default"
			if diff := cmp.Diff(tc.want, listed(p.list(&tc.filter))); diff != "" {
				t.Errorf("List (-want +got)\n%s", diff)
			}
		})
	}
	t.Run("pending is what waits for somebody", func(t *testing.T) {
		pending, err := p.Pending(t.Context(), "default", 10)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"waiting", "lost", "dead"}, listed(pending)); diff != "" {
			t.Errorf("Pending (-want +got)\n%s", diff)
		}
	})
	t.Run("lost reads hide nothing that is pending", func(t *testing.T) {
		for range 3 {
			p.RecordRead(&effect.Record{Principal: "agent:a", Server: "payments", Tool: "get", Rule: effect.RuleWindow, State: effect.StateInDoubt})
		}
		p.flushed(w)
		pending, err := p.Pending(t.Context(), "default", 3)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"waiting", "lost", "dead"}, listed(pending)); diff != "" {
			t.Errorf("Pending (-want +got)\n%s", diff)
		}
	})
	t.Run("nothing is not found", func(t *testing.T) {
		if _, err := p.Show(t.Context(), "default", "nothing"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Show = %v, want ErrNotFound", err)
		}
	})
	t.Run("errors say once what was wanted", func(t *testing.T) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, show := p.Show(t.Context(), "default", "nothing")
		_, list := p.List(gone, &store.Filter{Tenant: "default"})
		_, events := p.Events(gone, "default", 0, 1)
		_, tools := p.Tools(gone, "default", "payments")
		for want, err := range map[string]error{"effect nothing": show, "list effects": list, "list events": events, "list tools": tools} {
			if err == nil || strings.Count(err.Error(), want) != 1 {
				t.Errorf("error is %v, want %q in it once", err, want)
			}
		}
	})
}

func testTenants(t *testing.T, h Harness) {
	w := newWorld(t, h)
	p := w.process()
	ours := p.begin(charge(of("tenant-1"), run("r1")), contract())
	theirs := p.wants(effect.ActInsert, charge(of("tenant-2"), run("r1")), contract())
	p.settle(theirs.Claim, contract(), toolError(`{"isError":true}`))
	if r := p.wants(effect.ActJoin, charge(of("tenant-1"), run("r1")), contract()).Record; r.ID != ours.Claim.Effect {
		t.Errorf("joined %s", r.ID)
	}
	p.Delivered("tenant-1", theirs.Claim.Effect) // not theirs to tell
	p.flushed(w)
	if p.show("tenant-2", theirs.Claim.Effect).Record.Delivered {
		t.Error("another tenant told of a delivery")
	}
	if _, err := p.Show(t.Context(), "tenant-1", theirs.Claim.Effect); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Show = %v, want ErrNotFound", err)
	}
	for _, tenant := range []string{"tenant-1", "tenant-2"} {
		if n := len(p.list(&store.Filter{Tenant: tenant})); n != 1 {
			t.Errorf("%s has %d effects, want 1", tenant, n)
		}
	}
	if n := len(p.list(&store.Filter{Tenant: "default"})); n != 0 {
		t.Errorf("the default tenant has %d effects", n)
	}
	_, err := p.Resolve(t.Context(), store.ResolveParams{Tenant: "tenant-1", ID: theirs.Claim.Effect, To: effect.StateFailed, By: "user:u"})
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Resolve = %v, want ErrNotFound", err)
	}
}

func testPayloads(t *testing.T, h Harness) {
	for name, body := range map[string]string{
		"integers beyond 2^53":  `{"id":9007199254740993, "ref":1915883588174806058,"n":1.0e2}`,
		"the escaped U+0000":    `{"s":"a\u0000b"}`,
		"spaces and no object":  ` { "z" : 1 , "a":[ ] } `,
		"characters of 4 bytes": `{"😀":"😀","ﬀ":1}`,
	} {
		t.Run(name+" come back byte for byte", func(t *testing.T) {
			w := newWorld(t, h)
			p := w.process()
			begun := p.begin(charge(args(body)), contract())
			p.settle(begun.Claim, contract(), result(body))
			r := w.process().wants(effect.ActReplay, charge(args(body)), contract()).Record
			if string(r.Arguments) != body || string(r.Answer.Body) != body {
				t.Errorf("arguments %q, answer %q", r.Arguments, r.Answer.Body)
			}
		})
	}
	t.Run("a U+0000 in a name is part of it", func(t *testing.T) {
		p := newWorld(t, h).process()
		p.done(charge(key("a\x00b")), contract())
		r := p.wants(effect.ActReplay, charge(key("a\x00b")), contract()).Record
		if r.Key != "a\x00b" {
			t.Errorf("key %q", r.Key)
		}
		p.wants(effect.ActInsert, charge(key("a")), contract())
	})
	t.Run("nothing that is returned is shared", func(t *testing.T) {
		p := newWorld(t, h).process()
		call := charge()
		begun := p.begin(call, contract())
		spoil(call.Arguments, begun.Record.Arguments)
		outcome := result(`{"a":1}`)
		settled := p.settle(begun.Claim, contract(), outcome)
		if string(settled.Arguments) != `{"amount":10,"to":"alice"}` {
			t.Errorf("arguments %s", settled.Arguments)
		}
		spoil(outcome.Answer.Body, settled.Answer.Body, settled.Arguments)
		for range 2 {
			r := p.wants(effect.ActReplay, charge(), contract()).Record
			if string(r.Answer.Body) != `{"a":1}` || string(r.Arguments) != `{"amount":10,"to":"alice"}` {
				t.Fatalf("replayed %s with arguments %s", r.Answer.Body, r.Arguments)
			}
			spoil(r.Answer.Body, r.Arguments)
		}
	})
	t.Run("a brief list has the beginnings of arguments, and whether there was an answer", func(t *testing.T) {
		w := newWorld(t, h)
		p := w.process()
		long := `{"text":"` + strings.Repeat("x", 100_000) + `"}`
		want := p.done(charge(args(long)), contract())
		for _, f := range []store.Filter{{Brief: true}, {Brief: true, Writes: true, States: []effect.State{effect.StateCommitted}}} {
			f.Tenant = "default"
			list := p.list(&f)
			if len(list) != 1 {
				t.Fatalf("listed %d effects", len(list))
			}
			got := *list[0]
			if string(got.Arguments) != long[:store.BriefBytes] || len(got.Answer.Body) != 0 || got.Answer.Kind != effect.AnswerResult {
				t.Errorf("listed %d bytes of arguments, and a %q of %d", len(got.Arguments), got.Answer.Kind, len(got.Answer.Body))
			}
			got.Arguments, got.Answer.Body = want.Arguments, want.Answer.Body
			whole := p.list(&store.Filter{Tenant: "default"})[0]
			if diff := cmp.Diff(*whole, got); diff != "" {
				t.Errorf("but for payloads (-whole +brief)\n%s", diff)
			}
		}
	})
	t.Run("an answer of 20 MB is kept whole", func(t *testing.T) {
		p := newWorld(t, h).process()
		body := make([]byte, Scale(20<<20))
		for i := range body {
			body[i] = 'a' + byte(i%26)
		}
		begun := p.begin(charge(), contract())
		p.settle(begun.Claim, contract(), result(`"`+string(body)+`"`))
		r := p.wants(effect.ActReplay, charge(), contract()).Record
		if got := string(r.Answer.Body); len(got) != len(body)+2 || got[1:len(got)-1] != string(body) {
			t.Errorf("%d bytes came back", len(got))
		}
	})
}

func spoil(slices ...[]byte) {
	for _, s := range slices {
		clear(s)
	}
}

func testTools(t *testing.T, h Harness) {
	w := newWorld(t, h)
	p := w.process()
	learn := func(name, definition string, want bool) {
		t.Helper()
		changed, err := p.LearnTool(t.Context(), &store.Tool{
			Tenant: "default", Server: "s", Name: name, Definition: []byte(definition),
			Digest: sha256.Sum256([]byte(definition)), // to the log any digest is one
		})
		if err != nil || changed != want {
			t.Errorf("LearnTool = %v, %v; want %v", changed, err, want)
		}
	}
	learn("b", `{"name":"b"}`, false)
	learn("a", `{"name":"a"}`, false)
	learn("a", `{"name":"a"}`, false)
	learn("a", `{"name":"a","description":"other"}`, true)
	learn("a", `{"name":"a"}`, true)
	tools, err := w.process().Tools(t.Context(), "default", "s")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, tool := range tools {
		got = append(got, string(tool.Definition))
	}
	if diff := cmp.Diff([]string{`{"name":"a"}`, `{"name":"b"}`}, got); diff != "" {
		t.Errorf("Tools (-want +got)\n%s", diff)
	}
	p.flushed(w) // a note after them can be read, and so can they
	events, err := p.Events(t.Context(), "default", 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	assertKinds(t, events, effect.EventToolChanged, effect.EventToolChanged)
	if others, err := p.Tools(t.Context(), "tenant-2", "s"); err != nil || len(others) != 0 {
		t.Errorf("another tenant's tools: %v, %v", others, err)
	}
}

func testClose(t *testing.T, h Harness) {
	t.Run("what was settled is there after a crash, and what was not is in doubt", func(t *testing.T) {
		w := newWorld(t, h)
		d := w.driver()
		log, err := store.Open(d, &store.Options{Now: w.clock.Now, TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		p := &process{t: t, Log: log, driver: d}
		p.done(charge(args(`{"n":1}`)), contract())
		p.begin(charge(args(`{"n":2}`)), contract())
		if err := d.Close(); err != nil { // without End, as a crash
			t.Fatal(err)
		}
		t.Cleanup(func() { log.Close() })
		q := w.process()
		q.wants(effect.ActReplay, charge(args(`{"n":1}`)), contract())
		q.wants(effect.ActJoin, charge(args(`{"n":2}`)), contract())
		w.clock.advance(ttl)
		q.wants(effect.ActInDoubt, charge(args(`{"n":2}`)), contract())
	})
	t.Run("calls after it return ErrClosed, and it can be called twice", func(t *testing.T) {
		p := newWorld(t, h).process()
		for range 2 {
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.Begin(t.Context(), params(t, charge(), contract())); !errors.Is(err, store.ErrClosed) {
			t.Errorf("Begin = %v, want ErrClosed", err)
		}
		p.Delivered("default", "x") // must not hang
		p.Note(effect.Event{Kind: effect.EventRefused})
	})
}
