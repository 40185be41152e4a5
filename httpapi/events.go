package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// A stream begins with an event "pending", all that waits, and goes on with a store.Change each. An event's id
// is the time up to which the stream has told everything: whoever comes back with it, to this program or to
// another on the same log, is told what has become true since and still is on record of what waits. A change may
// be told twice; its key says so.

// changeJSON is an event of a stream.
type changeJSON struct {
	Type   store.ChangeKind `json:"type"`
	Key    string           `json:"key"` // the same change has the same key whenever it is told
	At     time.Time        `json:"at"`
	Effect *standingJSON    `json:"effect"`
}

// standingJSON is where an effect stands, without payloads.
type standingJSON struct {
	ID       string       `json:"id"`
	State    effect.State `json:"state"`
	Ordinal  int          `json:"ordinal"`
	Server   string       `json:"server"`
	Tool     string       `json:"tool"`
	Request  string       `json:"request,omitempty"`
	Approved bool         `json:"approved,omitempty"`
	Last     *effect.Vote `json:"last,omitempty"`
}

func standing(r *effect.Record, now time.Time) *standingJSON {
	s := &standingJSON{ID: r.ID, State: r.StateAt(now), Ordinal: r.Ordinal, Server: r.Server, Tool: r.Tool}
	if a := r.Approval; a != nil {
		s.Request, s.Approved, s.Last = a.ID, a.IsApproved(), a.Last
	}
	return s
}

type waitingJSON struct {
	Effects   []*standingJSON `json:"effects"`
	Truncated bool            `json:"truncated,omitempty"` // they are the newest: more wait
}

// streams counts those that are open.
type streams struct {
	mu  sync.Mutex
	of  map[string]int // by tenant
	all int
}

// enter reports whether a tenant may open one more, and counts it.
func (s *streams) enter(tenant string, most, mostOfAll int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[tenant] >= most || s.all >= mostOfAll {
		return false
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.of[tenant]++
	s.all++
	return true
}

func (s *streams) leave(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[tenant]--; s.of[tenant] == 0 {
		delete(s.of, tenant)
	}
}

// slack is how much later than it became true a change may be seen: clocks differ, and writes take their time.
const slack = 10 * time.Second

// stream is one client's.
type stream struct {
	h     *Handler
	w     http.ResponseWriter
	watch *store.Watcher
	who   *caller
	upTo  time.Time
}

func (h *Handler) streamEvents(w http.ResponseWriter, r *http.Request, who *caller) error {
	since, err := lastEventID(r)
	if err != nil {
		return err
	}
	if !h.streams.enter(who.tenant, h.opts.MaxStreams, h.opts.MaxAllStreams) {
		return &problem{Status: http.StatusServiceUnavailable, Outcome: "unavailable", Message: "too many streams are open"}
	}
	defer h.streams.leave(who.tenant)
	s := &stream{h: h, w: w, who: who, watch: h.log.Watch(who.tenant), upTo: since}
	first, err := s.watch.Look(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	_ = control.Flush()                      // which waits for a body that nobody reads: for no longer than that may take
	_ = control.SetReadDeadline(time.Time{}) // that of the body would end the stream
	if err := s.begin(r.Context(), first, since); err == nil {
		s.goOn(r.Context())
	}
	return nil
}

// lastEventID is up to when the client was told everything; zero when it begins.
func lastEventID(r *http.Request) (time.Time, error) {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		id = r.URL.Query().Get("after")
	}
	if id == "" {
		return time.Time{}, nil
	}
	micros, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return time.Time{}, &problem{Status: http.StatusBadRequest, Outcome: "invalid", Message: "Last-Event-ID is none of ours"}
	}
	return time.UnixMicro(micros), nil
}

// begin tells what waits, and to one who comes back what has changed since.
func (s *stream) begin(ctx context.Context, first []store.Change, since time.Time) error {
	now := s.h.log.Now()
	pending, err := s.h.log.Pending(ctx, s.who.tenant, pendingLimit+1)
	if err != nil {
		return err
	}
	waiting := waitingJSON{Effects: []*standingJSON{}}
	if len(pending) > pendingLimit {
		pending, waiting.Truncated = pending[:pendingLimit], true
	}
	for _, r := range pending {
		waiting.Effects = append(waiting.Effects, standing(r, now))
	}
	if since.IsZero() {
		s.upTo = now
		return s.send("pending", waiting)
	}
	if err := s.send("pending", waiting); err != nil {
		return err
	}
	settled, err := s.settled(ctx)
	if err != nil {
		return err
	}
	var missed []store.Change
	for _, c := range append(first, settled...) {
		if c.At.After(since.Add(-slack)) {
			missed = append(missed, c)
		}
	}
	if err := s.tell(missed); err != nil {
		return err
	}
	s.upTo = now
	return nil
}

// settled finds what was decided of the newest effects that do not wait any more.
func (s *stream) settled(ctx context.Context) ([]store.Change, error) {
	list, err := s.h.log.List(ctx, &store.Filter{Tenant: s.who.tenant, Limit: pendingLimit, States: []effect.State{
		effect.StateDenied, effect.StateExpired, effect.StateVoid, effect.StateClaimed, effect.StateCommitted, effect.StateFailed,
	}})
	if err != nil {
		return nil, err
	}
	var changes []store.Change
	for _, r := range list {
		changes = append(changes, store.Changes(r, s.h.log.Now())...)
	}
	return changes, nil
}

// goOn tells what changes until the client leaves or the program ends.
func (s *stream) goOn(ctx context.Context) {
	look, beat := time.NewTicker(s.h.opts.LookEvery), time.NewTicker(s.h.opts.Heartbeat)
	defer look.Stop()
	defer beat.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			err = s.write(fmt.Sprintf(": here\nid: %d\n\n", s.upTo.UnixMicro())) // not dispatched, and remembered
		case <-look.C:
			err = s.look(ctx)
		}
		if err != nil {
			return
		}
	}
}

func (s *stream) look(ctx context.Context) error {
	now := s.h.log.Now()
	changes, err := s.watch.Look(ctx)
	if err != nil {
		return err
	}
	s.upTo = now
	return s.tell(changes)
}

func (s *stream) tell(changes []store.Change) error {
	now := s.h.log.Now()
	for _, c := range changes {
		err := s.send(string(c.Kind), changeJSON{Type: c.Kind, Key: c.Key, At: c.At, Effect: standing(c.Record, now)})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) send(kind string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.write(fmt.Sprintf("event: %s\nid: %d\ndata: %s\n\n", kind, s.upTo.UnixMicro(), strings.TrimSpace(string(data))))
}

func (s *stream) write(text string) error {
	control := http.NewResponseController(s.w)
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // a server that has no deadlines keeps its own
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return control.Flush()
}
