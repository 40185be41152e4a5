package hostcheck

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/wire"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// checkRequestID sends what is answered and what is refused under ids that are easily taken for one another.
func checkRequestID(ctx context.Context, p *probe, f *finding) {
	for _, id := range []string{`7100001`, `"7100002"`, `"undolog-conformance"`, `0`} {
		for _, params := range []string{`{}`, `{"event":7}`} {
			a, err := p.conn.CallAs(ctx, json.RawMessage(id), interceptors.MethodList, json.RawMessage(params))
			if err != nil {
				f.addf("a request with the id %s: %v", id, err)
				return // a host that does not answer keeps each one waiting
			}
			if got := splice.Get(a.Raw, "id"); !same(got, json.RawMessage(id)) {
				f.addf("the answer to %s has the id %s", id, orAbsent(got))
			}
		}
	}
}

func checkNotification(ctx context.Context, p *probe, f *finding) {
	a, err := p.conn.Notify(ctx, "notifications/undolog-conformance", json.RawMessage(`{}`))
	if err != nil {
		f.addf("a notification that nobody knows: %v", err)
		return
	}
	if a != nil && (a.Error != nil || a.Result != nil || a.Status >= 500) {
		f.addf("a notification is answered: status %d, %.200s", a.Status, a.Raw)
	}
	// On one stream an answer to it would come before the next one, and look like that.
	const id = `"undolog-conformance-after"`
	next, err := p.conn.CallAs(ctx, json.RawMessage(id), interceptors.MethodList, json.RawMessage(`{}`))
	switch {
	case err != nil:
		f.addf("after a notification: %v", err)
	case next.Result == nil || splice.Get(next.Raw, "id") == nil || string(splice.Get(next.Raw, "id")) == "null":
		f.addf("after a notification there comes %.200s", next.Raw)
	}
}

// atOnce is how many requests checkConcurrent sends at the same time.
const atOnce = 16

func checkConcurrent(ctx context.Context, p *probe, f *finding) {
	faults := make([]finding, atOnce)
	var wg sync.WaitGroup
	for i := range atOnce {
		wg.Go(func() {
			name := fmt.Sprintf("undolog-conformance/nobody-%02d", i)
			data := p.refuses(ctx, &faults[i], interceptors.MethodInvoke, invocation(name, "tools/call", "request", benign, ""), -32602)
			if len(faults[i].faults) == 0 && data != nil && !bytes.Contains(data, []byte(name)) {
				faults[i].addf("the answer for %s is about %s", name, data)
			}
		})
	}
	wg.Wait()
	for i := range faults {
		f.faults = append(f.faults, faults[i].faults...)
	}
}

// provoked are requests that a host refuses, whatever it hosts.
var provoked = []struct{ method, params string }{
	{interceptors.MethodInvoke, `{}`},
	{interceptors.MethodInvoke, invocation("undolog-conformance/no-such-interceptor", "tools/call", "request", benign, "")},
	{interceptors.MethodList, `{"event":7}`},
	{"undolog-conformance/no-such-method", `{}`},
}

func checkErrorMessages(ctx context.Context, p *probe, f *finding) {
	judge := func(what string, a *conformance.Answer, ok bool) {
		if ok && a.Error != nil && a.Error.Message == "" {
			f.addf("%s: error %d without a message", what, a.Error.Code)
		}
	}
	for _, q := range provoked {
		a, ok := p.call(ctx, new(finding), q.method, q.params) // whether it is answered, others check
		judge(q.method+" "+q.params, a, ok)
	}
	for _, d := range p.descriptors {
		if !d.matches(unhooked) {
			a, ok := p.call(ctx, new(finding), interceptors.MethodInvoke, invocation(d.Name, unhooked, "request", benign, ""))
			judge("an event that "+d.Name+" does not hook", a, ok)
		}
	}
}

func checkDiscover(_ context.Context, p *probe, f *finding) {
	p.resultType(f, p.hello)
	var versions []string
	if err := json.Unmarshal(splice.Get(p.hello, "supportedVersions"), &versions); err != nil || !slices.Contains(versions, wire.Stateless) {
		f.addf("supportedVersions is %s, want %s among them", orAbsent(splice.Get(p.hello, "supportedVersions")), wire.Stateless)
	}
	if !isObject(splice.Get(p.hello, "capabilities")) {
		f.addf("capabilities is %s", orAbsent(splice.Get(p.hello, "capabilities")))
	}
}

// checkNullPayload invokes with what operations without params or results have. A refusal is as good as a
// verdict; a host that ends, that fails as a whole, or tells what went wrong inside is not.
func checkNullPayload(ctx context.Context, p *probe, f *finding) {
	tried := false
	for i := range p.descriptors {
		d := &p.descriptors[i]
		for _, phase := range []string{"request", "response"} {
			event, ok := d.event(phase)
			if !ok {
				continue
			}
			tried = true
			a, ok := p.call(ctx, f, interceptors.MethodInvoke, invocation(d.Name, event, phase, "null", ""))
			if ok && a.Status >= 500 {
				f.addf("%s, %s %s: HTTP status %d", d.Name, event, phase, a.Status)
			}
			if ok && a.Error != nil && inside.Match(a.Raw) {
				f.addf("%s, %s %s: an error says %q", d.Name, event, phase, inside.Find(a.Raw))
			}
		}
	}
	if !tried {
		f.nothing = "no interceptor can be invoked"
		return
	}
	p.list(ctx, f, "{}")
}

// event is one that the descriptor hooks in the phase: one that it names, else one that a pattern covers.
func (d *descriptor) event(phase string) (event string, ok bool) {
	for _, candidate := range append([]string{"tools/call"}, concrete([]descriptor{*d})...) {
		if d.hooked(candidate, phase) {
			return candidate, true
		}
	}
	return "", false
}
