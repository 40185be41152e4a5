package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/httpapi"
)

// event is one of a stream.
type event struct {
	Kind, ID string
	Data     struct {
		Key     string
		Effects []struct{ ID string }
		Effect  struct {
			ID    string
			State effect.State
		}
	}
}

// stream is a client that listens.
type stream struct {
	t      *testing.T
	events chan event
	beats  chan struct{}
	close  func()
}

// stream listens as the holder of a token, from where an id of before says.
func (w *world) stream(token, after string) *stream {
	w.t.Helper()
	req := w.request(token, "GET", "/v1/events", "")
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	client := &http.Client{Transport: &http.Transport{}}
	res, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	if got := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || got != "text/event-stream" {
		w.t.Fatalf("status %d, %s", res.StatusCode, got)
	}
	s := &stream{t: w.t, events: make(chan event, 100), beats: make(chan struct{}, 100)}
	done := make(chan struct{})
	s.close = func() { _ = res.Body.Close(); <-done; client.CloseIdleConnections() }
	w.t.Cleanup(s.close)
	go func() {
		defer close(done)
		s.read(bufio.NewScanner(res.Body))
	}()
	return s
}

func (s *stream) read(lines *bufio.Scanner) {
	var ev event
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			ev.Kind = value
		case "id":
			ev.ID = value
		case "data":
			if err := json.Unmarshal([]byte(value), &ev.Data); err != nil {
				s.t.Errorf("read %s: %v", value, err)
			}
			s.events <- ev
			ev = event{}
		case "":
			if value != "" {
				s.beats <- struct{}{}
			}
		}
	}
}

// next waits for an event, which must be of that kind.
func (s *stream) next(kind string) event {
	s.t.Helper()
	select {
	case ev := <-s.events:
		if ev.Kind != kind {
			s.t.Fatalf("event %s, want %s: %+v", ev.Kind, kind, ev)
		}
		return ev
	case <-time.After(time.Minute):
		s.t.Fatalf("no event %s came", kind)
		return event{}
	}
}

func TestEvents(t *testing.T) {
	t.Run("tell what waits, and then what changes, of one tenant", func(t *testing.T) {
		w := newWorld(t)
		waits := w.asked(`{"n":1}`)
		s, others := w.stream(alice, ""), w.stream(carol, "")
		if ev := s.next("pending"); len(ev.Data.Effects) != 1 || ev.Data.Effects[0].ID != waits.ID {
			t.Errorf("what waits: %+v", ev)
		}
		if ev := others.next("pending"); len(ev.Data.Effects) != 0 {
			t.Errorf("another tenant is told %+v", ev)
		}
		r := w.asked(`{"n":2}`)
		if ev := s.next("approval.requested"); ev.Data.Effect.ID != r.ID {
			t.Errorf("asked: %+v", ev)
		}
		w.approve(bob, r.ID)
		s.next("approval.decided")
		begun := w.call(`{"n":2}`)
		s.next("effect.running")
		outcome := effect.Outcome{Kind: effect.OutcomeAnswered, Answer: effect.Answer{Kind: effect.AnswerResult, Body: []byte(`{}`)}}
		if _, err := w.log.Settle(t.Context(), *begun.Claim, contract(), outcome); err != nil {
			t.Fatal(err)
		}
		if ev := s.next("effect.ended"); ev.Data.Effect.State != effect.StateCommitted {
			t.Errorf("ended: %+v", ev)
		}
		if len(others.events) > 0 {
			t.Errorf("another tenant is told %+v", <-others.events)
		}
	})
	t.Run("tell one who comes back what was missed", func(t *testing.T) {
		w := newWorld(t)
		first, second := w.asked(`{"n":1}`), w.asked(`{"n":2}`)
		s := w.stream(alice, "")
		last := s.next("pending").ID
		s.close()
		w.clock.pass(time.Hour)
		w.do(bob, "POST", "/v1/approvals/"+first.ID+"/deny", `{"reason":"no"}`)
		w.approve(bob, second.ID)
		third := w.asked(`{"n":3}`)
		back := newWorldOn(t, w).stream(alice, last) // another program on the same log
		back.next("pending")
		missed := map[string]bool{}
		for !missed["approval.decided "+first.ID] || !missed["approval.decided "+second.ID] || !missed["approval.requested "+third.ID] {
			select {
			case ev := <-back.events:
				missed[ev.Kind+" "+ev.Data.Effect.ID] = true
			case <-time.After(time.Minute):
				t.Fatalf("only this was told: %v", missed)
			}
		}
	})
	t.Run("show signs of life", func(t *testing.T) {
		w := newWorld(t, func(o *httpapi.Options) { o.Heartbeat = time.Millisecond })
		s := w.stream(alice, "")
		for range 3 {
			select {
			case <-s.beats:
			case <-time.After(time.Minute):
				t.Fatal("no sign of life came")
			}
		}
	})
	t.Run("go on past the time that a body may take", func(t *testing.T) {
		w := newWorld(t, func(o *httpapi.Options) { o.ReadTimeout, o.Heartbeat = time.Nanosecond, 50*time.Millisecond })
		s := w.stream(alice, "")
		s.next("pending")
		for range 10 {
			select {
			case <-s.beats:
			case <-time.After(time.Minute):
				t.Fatal("the stream has ended")
			}
		}
		w.asked(`{"n":1}`)
		s.next("approval.requested")
	})
	t.Run("begin beside a body that does not come", func(t *testing.T) {
		w := newWorld(t, func(o *httpapi.Options) { o.ReadTimeout = 100 * time.Millisecond })
		body, unsent := io.Pipe()
		defer unsent.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		defer context.AfterFunc(ctx, func() { unsent.Close() })() // else the client waits for it
		req := w.request(alice, "GET", "/v1/events", "").WithContext(ctx)
		req.Body, req.ContentLength = body, -1
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	t.Run("are for a bounded number of listeners", func(t *testing.T) {
		w := newWorld(t, func(o *httpapi.Options) { o.MaxStreams = 2 })
		w.stream(alice, "")
		s := w.stream(alice, "")
		w.refused(w.do(alice, "GET", "/v1/events", ""), http.StatusServiceUnavailable)
		s.close()
		for deadline := time.Now().Add(time.Minute); ; {
			req := w.request(alice, "GET", "/v1/events", "")
			res, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("a place that is free again is not given")
			}
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
}

// One tenant's listeners take nobody else's places, but all together are bounded.
func TestEvents_AreBoundedByTenant(t *testing.T) {
	w := newWorld(t, func(o *httpapi.Options) { o.MaxStreams, o.MaxAllStreams = 2, 3 })
	w.stream(alice, "")
	w.stream(bob, "")
	w.refused(w.do(alice, "GET", "/v1/events", ""), http.StatusServiceUnavailable)
	w.stream(carol, "").next("pending")
	w.refused(w.do(carol, "GET", "/v1/events", ""), http.StatusServiceUnavailable)
}

func TestPending_showsNoHandle(t *testing.T) {
	w := newWorld(t)
	r := w.asked(`{"n":1}`)
	raw := w.do(alice, "GET", "/v1/pending", "")
	if strings.Contains(string(raw.Body), r.Approval.Handle) {
		t.Error("the handle by which the caller goes on is listed")
	}
}
