package interceptors

import (
	"slices"
	"sync"
)

// Remove takes interceptors out; names that are not there are passed over. Their invocations under way are
// finished.
func (s *Server) Remove(names ...string) {
	if s.remove(names) {
		s.changes.tell()
	}
}

func (s *Server) remove(names []string) (removed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.order)
	s.order = slices.DeleteFunc(s.order, func(e *entry) bool { return slices.Contains(names, e.Name) })
	for _, name := range names {
		delete(s.byName, name)
	}
	return len(s.order) < before
}

// Watch has changed called whenever interceptors were added or removed, by the goroutine that did it and
// before Add or Remove returns. It is how an engine in the same process learns of it. Peers on the wire learn
// of it through Announcing and Handler when they are older than 2026-07-28, and by ListTTL from then on.
func (s *Server) Watch(changed func()) { s.changes.add(changed) }

// watchers are told of changes. The zero value is ready.
type watchers struct {
	mu    sync.Mutex
	next  int
	funcs map[int]func()
}

// add returns what takes f out again.
func (w *watchers) add(f func()) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.funcs == nil {
		w.funcs = map[int]func(){}
	}
	id := w.next
	w.next++
	w.funcs[id] = f
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.funcs, id)
	}
}

func (w *watchers) tell() {
	for _, f := range w.all() {
		f()
	}
}

// all is a copy: a watcher may itself add and remove.
func (w *watchers) all() []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]func(), 0, len(w.funcs))
	for _, f := range w.funcs {
		all = append(all, f)
	}
	return all
}
