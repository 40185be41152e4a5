package effectinterceptor

import "sync"

// recentMost bounds what is remembered of exchanges that are over: the latest so many.
const recentMost = 4096

// recent remembers something of the latest exchanges. The zero value is ready.
type recent[T any] struct {
	mu     sync.Mutex
	of     map[string]T // by exchange
	oldest []string     // exchanges in order of arrival, a ring
	next   int
}

// arrival is the effect that a delivered answer was of, for the engine that finds out later that it did
// not arrive.
type arrival struct{ tenant, effect string }

func (r *recent[T]) add(exchange string, what T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of, r.oldest = map[string]T{}, make([]string, recentMost)
	}
	delete(r.of, r.oldest[r.next])
	r.oldest[r.next] = exchange
	r.next = (r.next + 1) % recentMost
	r.of[exchange] = what
}

func (r *recent[T]) get(exchange string) (what T, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what, ok = r.of[exchange]
	return what, ok
}

// take returns what is remembered and forgets it.
func (r *recent[T]) take(exchange string) (what T, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what, ok = r.of[exchange]
	delete(r.of, exchange)
	return what, ok
}
