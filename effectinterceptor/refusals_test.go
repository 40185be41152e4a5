package effectinterceptor_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/effectinterceptor"
)

// more is how many calls an event stands for beside its own.
func more(t *testing.T, ev effect.Event) int {
	t.Helper()
	var detail struct {
		More int `json:"more"`
	}
	if len(ev.Detail) > 0 {
		if err := json.Unmarshal(ev.Detail, &detail); err != nil {
			t.Fatal(err)
		}
	}
	return detail.More
}

// notebook takes events, also those that a timer tells.
type notebook struct {
	mu     sync.Mutex
	events []effect.Event
}

func (b *notebook) note(ev effect.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, ev)
}

func (b *notebook) all() []effect.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

func TestRefusals_AFloodIsTwoEventsAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book notebook
		add, end := effectinterceptor.Refusals(book.note)
		for range 5000 { // in 50 seconds
			add(effect.Event{Kind: effect.EventRefused, Tool: "pay", Detail: json.RawMessage(`{"reason":"no"}`)}, "limit")
			time.Sleep(10 * time.Millisecond) // of the bubble's clock
		}
		add(effect.Event{Kind: effect.EventRefused, Tool: "wire"}, "limit")
		add(effect.Event{Kind: effect.EventRefused, Tool: "pay"}, "denied")
		if noted := book.all(); len(noted) != 3 || more(t, noted[0]) != 0 {
			t.Fatalf("noted at once: %+v, want the first of each kind", noted)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if noted := book.all(); len(noted) != 4 || more(t, noted[3]) != 4999 || noted[3].Tool != "pay" {
			t.Fatalf("noted when the minute is over: %+v, want the number of the others", noted[min(3, len(noted)):])
		}
		add(effect.Event{Kind: effect.EventRefused, Tool: "pay"}, "limit")
		if len(book.all()) != 5 {
			t.Errorf("the first of the next minute is not noted at once")
		}
		end()
	})
}

// Names that callers choose do not make more events.
func TestRefusals_OfManyNamesAreCountedTogether(t *testing.T) {
	var book notebook
	add, end := effectinterceptor.Refusals(book.note)
	for n := range 5000 {
		add(effect.Event{Kind: effect.EventRefused, Tool: strconv.Itoa(n)}, "denied")
	}
	end()
	noted, sum := book.all(), 0
	for _, ev := range noted {
		sum += max(1, more(t, ev))
	}
	if len(noted) > 1002 || sum != 5000 {
		t.Errorf("%d events for %d calls, want at most 1002 for 5000", len(noted), sum)
	}
}

func TestClose_NotesHowManyCallsWereStopped(t *testing.T) {
	w := newWorld(t, policy("version: 1\ntools:\n  - {tool: pay, tier: irreversible, deny: not today}\n"))
	for n := range 50 {
		w.alice().with(exchange(strconv.Itoa(n))).mustBlock(pay)
	}
	w.ei.Close()
	if ev := w.wantEvent(effect.EventRefused, 2); len(ev) == 2 && (more(t, ev[1]) != 49 || ev[1].Tool != "pay") {
		t.Errorf("the second event is %+v with %s, want 49 more", ev[1], ev[1].Detail)
	}
}

// An agent that sends the same call for ever writes two events a minute, and each of its calls is counted.
func TestReplays_AFloodIsTwoEvents(t *testing.T) {
	const keyed = `{"name":"pay","arguments":{},"_meta":{"idempotencyKey":"k"}}`
	w := newWorld(t)
	w.alice().with(exchange("first")).run(keyed, `{"content":[]}`)
	for n := range 2000 {
		w.alice().with(exchange(strconv.Itoa(n))).mustRespond(keyed)
	}
	w.ei.Close()
	w.alice().with(exchange("last")).mustRespond(keyed)
	events := w.wantEvent(effect.EventReplayed, 3)
	if len(events) == 3 && (more(t, events[0]) != 0 || more(t, events[1]) != 1999 || more(t, events[2]) != 0 || events[1].Effect != w.only().ID) {
		t.Errorf("replays are noted as %+v, want one, 1999 more of the effect, and one that came after the end", events)
	}
}
