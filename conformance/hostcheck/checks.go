package hostcheck

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/undolog/undolog/conformance"
	"github.com/undolog/undolog/conformance/wire"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/jcs"
	"github.com/undolog/undolog/internal/splice"
)

// check is one question to a host.
type check struct {
	id, requirement, description string
	revision                     string // only this one; empty: all
	invokes                      bool
	run                          func(ctx context.Context, p *probe, f *finding)
}

const sep = "SEP-2624/"

// unhooked is an event that no host names.
const unhooked = "undolog-conformance/no-such-event"

var checks = []check{
	{"host/capability", sep + "capability", "the extension is declared, and nowhere that clients do not look", "", false, checkCapability},
	{"host/no-tools", sep + "capability.only", "no tools, prompts or resources are offered at the same endpoint", "", false, checkNoTools},
	{"host/list", sep + "interceptors-list", "interceptors/list answers with descriptors", "", false, checkList},
	{"host/list-without-params", sep + "interceptors-list", "params may be left out", wire.Legacy, false, checkListWithoutParams},
	{"host/list-stable", sep + "interceptors-list", "the same question has the same answer, in the same order", "", false, checkListStable},
	{"host/descriptors", sep + "descriptor.fields", "descriptors have their members, no nulls and no defaults", "", false, checkDescriptors},
	{"host/unique-names", sep + "descriptor.name", "no two interceptors have one name", "", false, checkUnique},
	{"host/filter", sep + "interceptors-list.event-filter", "the event filter finds what hooks the event, wildcards included, in whole", "", false, checkFilter},
	{"host/filter-nothing", sep + "interceptors-list.event-filter", "an event that nothing names finds wildcards alone", "", false, checkFilterNothing},
	{"host/filter-malformed", sep + "interceptors-list.event-filter", "the filter is one event: a pattern or a number is refused", "", false, checkFilterMalformed},
	{"host/unknown-name", sep + "interceptor-invoke.unknown-name", "an interceptor that is not there is −32602 with its name", "", false, checkUnknownName},
	{"host/hook-event", sep + "interceptor-invoke.hook-check", "an event that is not hooked is −32602 with what is", "", false, checkHookEvent},
	{"host/hook-phase", sep + "interceptor-invoke.hook-check", "a phase that is not hooked is −32602 with what is", "", false, checkHookPhase},
	{"host/malformed-params", sep + "interceptor-invoke.params", "params that cannot be used are −32602", "", false, checkMalformed},
	{"host/plural-method", sep + "methods", "interceptors/invoke is no method", "", false, checkPlural},
	{"host/unknown-method", sep + "methods", "a method that is not there is −32601", "", false, checkUnknownMethod},
	{"host/list-result-type", sep + "result-type", "results say resultType complete from 2026-07-28 on, and not before", "", false, checkListResultType},
	{"host/errors-leak-nothing", sep + "errors", "errors tell nothing of the inside", "", false, checkErrorsLeakNothing},
	{"host/ping", "MCP-2025-11-25/ping", "the server answers pings", wire.Legacy, false, checkPing},
	{"host/result-shape", sep + "interceptor-invoke.result", "results are flat, name what they are of, and contradict themselves nowhere", "", true, checkResultShape},
	{"host/result-unknown-members", sep + "interceptor-invoke.params", "members that nobody knows change nothing", "", true, checkUnknownMembers},
	{"host/result-wrapped", sep + "interceptor-invoke.payload", "a wrapped payload comes back wrapped", "", true, checkWrapped},
	{"host/result-numbers", sep + "interceptor-invoke.payload", "a payload that is not changed comes back digit for digit", "", true, checkNumbers},
	{"host/request-id", "JSON-RPC/id", "an answer has the id of its request, a number as a number and a string as a string", "", false, checkRequestID},
	{"host/error-messages", "JSON-RPC/error", "every error says something", "", false, checkErrorMessages},
	{"host/notification", "JSON-RPC/notification", "what wants no answer gets none", "", false, checkNotification},
	{"host/concurrent", "JSON-RPC/id", "requests at the same time are each answered for themselves", "", false, checkConcurrent},
	{"host/discover", "MCP-2026-07-28/discover", "server/discover is a complete result that names the revision", wire.Stateless, false, checkDiscover},
	{"host/config-no-object", sep + "interceptor-invoke.config", "a config that is no object, or not what the schema wants, is −32602", "", false, checkConfig},
	// The last one: a host that it ends can be asked nothing more.
	{"host/null-payload", sep + "interceptor-invoke.payload", "a payload of null is judged or refused, and the host goes on", "", true, checkNullPayload},
}

func checkCapability(_ context.Context, p *probe, f *finding) {
	places := [][]string{{"capabilities", "extensions", interceptors.ExtensionID}}
	if p.conn.Revision() == wire.Legacy {
		places = append(places, []string{"capabilities", "experimental", interceptors.ExtensionID})
	}
	var declared json.RawMessage
	for _, place := range places {
		if found := splice.Get(p.hello, place...); found != nil && declared == nil {
			declared = found
		}
	}
	if declared == nil {
		f.addf("the capabilities do not name %s: %s", interceptors.ExtensionID, orAbsent(splice.Get(p.hello, "capabilities")))
	} else if !isObject(declared) {
		f.addf("the capability is %s, want an object", declared)
	} else if events := splice.Get(declared, "supportedEvents"); events != nil {
		var names []string
		if json.Unmarshal(events, &names) != nil || names == nil {
			f.addf("supportedEvents is %s, want a list of strings", events)
		}
	}
	if old := splice.Get(p.hello, "capabilities", "interceptor"); old != nil {
		f.addf("capabilities.interceptor is a place that clients drop: %s", old)
	}
}

// checkNoTools lets a capability be declared that is empty: some clients try every server with its list of
// tools.
func checkNoTools(ctx context.Context, p *probe, f *finding) {
	for _, name := range []string{"tools", "prompts", "resources"} {
		if splice.Get(p.hello, "capabilities", name) == nil {
			continue
		}
		a, ok := p.call(ctx, f, name+"/list", "{}")
		var offered []json.RawMessage
		switch {
		case !ok:
		case a.Error != nil:
			f.addf("capabilities.%s is declared, and %s/list is answered with error %d", name, name, a.Error.Code)
		case json.Unmarshal(splice.Get(a.Result, name), &offered) != nil:
			f.addf("%s/list is answered %.200s", name, a.Result)
		case len(offered) > 0:
			f.addf("%s/list offers %d", name, len(offered))
		}
	}
}

// list asks for descriptors; faults go to f.
func (p *probe) list(ctx context.Context, f *finding, params string) ([]descriptor, json.RawMessage) {
	a, ok := p.call(ctx, f, interceptors.MethodList, params)
	if !ok {
		return nil, nil
	}
	if a.Error != nil {
		f.addf("interceptors/list %s: error %d: %s", params, a.Error.Code, a.Error.Message)
		return nil, nil
	}
	list, err := readList(a.Result)
	if err != nil {
		f.addf("interceptors/list %s: %v", params, err)
	}
	return list, a.Result
}

// call sends one request; a transport's failure goes to f.
func (p *probe) call(ctx context.Context, f *finding, method, params string) (*conformance.Answer, bool) {
	var raw json.RawMessage
	if params != "" {
		raw = json.RawMessage(params)
	}
	a, err := p.conn.Call(ctx, method, raw)
	if err != nil {
		f.addf("%s %s: %v", method, params, err)
		return nil, false
	}
	if a.Error == nil && a.Result == nil {
		f.addf("%s %s: no JSON-RPC answer: status %d, %.200s", method, params, a.Status, a.Raw)
		return nil, false
	}
	return a, true
}

// refuses wants an error of the code and returns its data.
func (p *probe) refuses(ctx context.Context, f *finding, method, params string, code int64) json.RawMessage {
	a, ok := p.call(ctx, f, method, params)
	switch {
	case !ok:
		return nil
	case a.Error == nil:
		f.addf("%s %s: result %.200s, want error %d", method, params, a.Result, code)
		return nil
	case a.Error.Code != code:
		f.addf("%s %s: error %d (%s), want %d", method, params, a.Error.Code, a.Error.Message, code)
	}
	return a.Error.Data
}

func checkList(ctx context.Context, p *probe, f *finding) { p.list(ctx, f, "{}") }

func checkListWithoutParams(ctx context.Context, p *probe, f *finding) { p.list(ctx, f, "") }

func checkListStable(ctx context.Context, p *probe, f *finding) {
	first, _ := p.list(ctx, f, "{}")
	for range 4 {
		again, _ := p.list(ctx, f, "{}")
		if diff := difference(first, again); diff != "" {
			f.addf("two lists differ: %s", diff)
			return
		}
	}
}

// difference says how two lists differ, empty when they do not.
func difference(want, got []descriptor) string {
	if names(want) != names(got) {
		return fmt.Sprintf("names are %s, want %s", names(got), names(want))
	}
	for i := range want {
		if !same(want[i].raw, got[i].raw) {
			return fmt.Sprintf("descriptor is %s, want %s", got[i].raw, want[i].raw)
		}
	}
	return ""
}

func names(ds []descriptor) string {
	all := make([]string, len(ds))
	for i := range ds {
		all[i] = ds[i].Name
	}
	return fmt.Sprintf("%q", all)
}

func same(a, b json.RawMessage) bool {
	ca, errA := jcs.Canonical(a)
	cb, errB := jcs.Canonical(b)
	return errA == nil && errB == nil && bytes.Equal(ca, cb)
}

func checkDescriptors(ctx context.Context, p *probe, f *finding) {
	list, _ := p.list(ctx, f, "{}")
	for i := range list {
		f.faults = append(f.faults, list[i].faults()...)
	}
	if len(list) == 0 && len(f.faults) == 0 {
		f.nothing = "nothing is listed"
	}
}

func checkUnique(ctx context.Context, p *probe, f *finding) {
	list, _ := p.list(ctx, f, "{}")
	seen := map[string]bool{}
	for i := range list {
		if seen[list[i].Name] {
			f.addf("%q is listed twice", list[i].Name)
		}
		seen[list[i].Name] = true
	}
}

func checkFilter(ctx context.Context, p *probe, f *finding) {
	events := concrete(p.descriptors)
	if len(events) == 0 {
		events = []string{"tools/call", "prompts/get"}
	}
	for _, event := range events {
		p.filtered(ctx, f, event)
	}
}

func checkFilterNothing(ctx context.Context, p *probe, f *finding) { p.filtered(ctx, f, unhooked) }

// filtered compares a filtered list with what the whole one says.
func (p *probe) filtered(ctx context.Context, f *finding, event string) {
	var want []descriptor
	for _, d := range p.descriptors {
		if d.matches(event) {
			want = append(want, d)
		}
	}
	got, result := p.list(ctx, f, `{"event":`+quoted(event)+`}`)
	if result == nil {
		return
	}
	if diff := difference(want, got); diff != "" {
		f.addf("filtered by %s: %s", event, diff)
	}
}

func checkFilterMalformed(ctx context.Context, p *probe, f *finding) {
	for _, event := range []string{`"*"`, `"tools/*"`, `7`} {
		p.refuses(ctx, f, interceptors.MethodList, `{"event":`+event+`}`, -32602)
	}
}

const benign = `{"name":"undolog-conformance-probe","arguments":{"note":"hello","id":9007199254740993,"text":"gr\u00fc\u00dfe \ud83d\ude00 <&>\u2028"},"_meta":{"org.example/kept":1}}`

// invocation are params of interceptor/invoke; more is appended, beginning with a comma.
func invocation(name, event, phase, payload, more string) string {
	return fmt.Sprintf(`{"name":%s,"event":%s,"phase":%s,"payload":%s%s}`, quoted(name), quoted(event), quoted(phase), payload, more)
}

func checkUnknownName(ctx context.Context, p *probe, f *finding) {
	const name = "undolog-conformance/no-such-interceptor"
	data := p.refuses(ctx, f, interceptors.MethodInvoke, invocation(name, "tools/call", "request", benign, ""), -32602)
	if len(f.faults) == 0 && !bytes.Contains(data, []byte(name)) {
		f.addf("error.data does not name the interceptor: %s", orAbsent(data))
	}
	for _, d := range p.descriptors {
		event, phase, ok := d.toolCall()
		for _, near := range []string{strings.ToUpper(d.Name), " " + d.Name, d.Name + "*"} {
			if ok && !p.lists(near) {
				p.refuses(ctx, f, interceptors.MethodInvoke, invocation(near, event, phase, payloadOf(phase), ""), -32602)
			}
		}
	}
}

func (p *probe) lists(name string) bool {
	return slices.ContainsFunc(p.descriptors, func(d descriptor) bool { return d.Name == name })
}

func checkHookEvent(ctx context.Context, p *probe, f *finding) {
	tried := false
	for _, d := range p.descriptors {
		if d.matches(unhooked) {
			continue
		}
		tried = true
		for _, phase := range []string{"request", "response"} {
			data := p.refuses(ctx, f, interceptors.MethodInvoke, invocation(d.Name, unhooked, phase, benign, ""), -32602)
			advertised(f, &d, data)
		}
	}
	if !tried {
		f.nothing = "every interceptor hooks every event"
	}
}

func checkHookPhase(ctx context.Context, p *probe, f *finding) {
	tried := false
	for _, d := range p.descriptors {
		for _, event := range concrete([]descriptor{d}) {
			for _, phase := range []string{"request", "response"} {
				if d.hooked(event, phase) {
					continue
				}
				tried = true
				data := p.refuses(ctx, f, interceptors.MethodInvoke, invocation(d.Name, event, phase, benign, ""), -32602)
				advertised(f, &d, data)
			}
		}
	}
	if !tried {
		f.nothing = "every interceptor hooks its events in both phases"
	}
}

// advertised wants that a refusal repeats the hooks of the list, and names nobody else.
func advertised(f *finding, d *descriptor, data json.RawMessage) {
	if data == nil && len(f.faults) > 0 {
		return
	}
	for _, member := range []string{"name", "interceptor"} {
		if named := splice.Get(data, member); named != nil && !same(named, json.RawMessage(quoted(d.Name))) {
			f.addf("%s: error.data.%s is %s", d.Name, member, named)
		}
	}
	if hooks := splice.Get(data, "advertisedHooks"); hooks == nil || !same(hooks, splice.Get(d.raw, "hooks")) {
		f.addf("%s: error.data.advertisedHooks is %s, want the listed hooks", d.Name, orAbsent(hooks))
	}
}

func checkMalformed(ctx context.Context, p *probe, f *finding) {
	name := "undolog-conformance/no-such-interceptor"
	event, phase := "tools/call", "request"
	if len(p.descriptors) > 0 { // one that is there: its name must not be why
		d := p.descriptors[0]
		name = d.Name
		if len(d.Hooks) > 0 && len(concrete([]descriptor{d})) > 0 {
			event, phase = concrete([]descriptor{d})[0], d.Hooks[0].Phase
		}
	}
	n, e, ph := quoted(name), quoted(event), quoted(phase)
	for _, params := range []string{
		`{"event":` + e + `,"phase":` + ph + `,"payload":{}}`,
		`{"name":"","event":` + e + `,"phase":` + ph + `,"payload":{}}`,
		`{"name":7,"event":` + e + `,"phase":` + ph + `,"payload":{}}`,
		`{"name":` + n + `,"phase":` + ph + `,"payload":{}}`,
		`{"name":` + n + `,"event":` + e + `,"payload":{}}`,
		`{"name":` + n + `,"event":` + e + `,"phase":"both","payload":{}}`,
		`{"name":` + n + `,"event":` + e + `,"phase":` + ph + `,"payload":{},"timeoutMs":-1}`,
		`{"name":` + n + `,"event":` + e + `,"phase":` + ph + `,"payload":{},"context":"me"}`,
		`{"name":` + n + `,"event":` + e + `,"phase":` + ph + `,"payload":{},"context":{"principal":{"type":"robot"}}}`,
	} {
		p.refuses(ctx, f, interceptors.MethodInvoke, params, -32602)
	}
}

func checkPlural(ctx context.Context, p *probe, f *finding) {
	p.refuses(ctx, f, "interceptors/invoke", invocation("x", "tools/call", "request", benign, ""), -32601)
}

func checkUnknownMethod(ctx context.Context, p *probe, f *finding) {
	a, ok := p.call(ctx, new(finding), "undolog-conformance/no-such-method", "{}")
	if !ok {
		if p.conn.Revision() == wire.Legacy {
			return // before 2026-07-28 a transport may end what it does not know
		}
		f.addf("an unknown method is not answered")
		return
	}
	if a.Error == nil || a.Error.Code != -32601 {
		f.addf("an unknown method: %.200s, want error −32601", a.Raw)
	}
}

func checkListResultType(ctx context.Context, p *probe, f *finding) {
	_, result := p.list(ctx, f, "{}")
	if result != nil {
		p.resultType(f, result)
	}
}

func (p *probe) resultType(f *finding, result json.RawMessage) {
	got := string(splice.Get(result, "resultType"))
	switch {
	case p.conn.Revision() == wire.Stateless && got != `"complete"`:
		f.addf("resultType is %q, want complete", got)
	case p.conn.Revision() == wire.Legacy && got != "":
		f.addf("resultType is %s; peers of this revision do not know it", got)
	}
}

// inside is text that comes from inside a program.
var inside = regexp.MustCompile(`goroutine \d+|\.go:\d+|Traceback \(most recent|File ".*", line \d+|\bat .+\(.+:\d+:\d+\)|panic:|node_modules|site-packages|` +
	`nil pointer|'NoneType'|of (null|undefined)\b`)

func checkErrorsLeakNothing(ctx context.Context, p *probe, f *finding) {
	for _, params := range []string{`{}`, `{"name":{"a":1}}`, `{"name":"x","event":"tools/call","phase":"request","payload":{},"context":{"principal":7}}`,
		invocation("undolog-conformance/no-such-interceptor", "tools/call", "request", benign, "")} {
		a, ok := p.call(ctx, f, interceptors.MethodInvoke, params)
		if ok && a.Error != nil {
			if leak := inside.Find(a.Raw); leak != nil {
				f.addf("an error says %q", leak)
			}
		}
	}
}

func checkPing(ctx context.Context, p *probe, f *finding) {
	if a, ok := p.call(ctx, f, "ping", "{}"); ok && a.Error != nil {
		f.addf("ping: error %d: %s", a.Error.Code, a.Error.Message)
	}
}

func checkConfig(ctx context.Context, p *probe, f *finding) {
	tried := false
	for _, d := range p.descriptors {
		event, phase, ok := d.toolCall()
		if !ok {
			continue
		}
		tried = true
		p.refuses(ctx, f, interceptors.MethodInvoke, invocation(d.Name, event, phase, benign, `,"config":[1]`), -32602)
		if wrong, ok := misfit(splice.Get(d.raw, "configSchema")); ok {
			p.refuses(ctx, f, interceptors.MethodInvoke, invocation(d.Name, event, phase, benign, `,"config":`+wrong), -32602)
		}
	}
	if !tried {
		f.nothing = "no interceptor hooks an event that can be made up"
	}
}

// misfit is a config that a schema surely refuses, where one can be told.
func misfit(schema json.RawMessage) (config string, ok bool) {
	if string(splice.Get(schema, "additionalProperties")) == "false" {
		return `{"undolog-conformance-no-such-setting":1}`, true
	}
	var required []string
	if json.Unmarshal(splice.Get(schema, "required"), &required) == nil && len(required) > 0 {
		return `{}`, true
	}
	return "", false
}

// toolCall is a hook of the descriptor for which a payload can be made up.
func (d *descriptor) toolCall() (event, phase string, ok bool) {
	for _, phase := range []string{"request", "response"} {
		if d.hooked("tools/call", phase) {
			return "tools/call", phase, true
		}
	}
	return "", "", false
}

func quoted(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string
	}
	return string(raw)
}

func isObject(raw json.RawMessage) bool {
	return strings.HasPrefix(strings.TrimSpace(string(raw)), "{")
}
