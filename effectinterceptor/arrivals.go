package effectinterceptor

import "sync"

// arrivalsMost bounds what can be taken back: the latest so many answers.
const arrivalsMost = 4096

// arrivals remembers which effects the latest delivered answers were of, for the engine that finds out
// later that one was not. The zero value is ready.
type arrivals struct {
	mu     sync.Mutex
	of     map[string]arrival // by exchange
	oldest []string           // exchanges in order of arrival, a ring
	next   int
}

type arrival struct{ tenant, effect string }

func (a *arrivals) add(exchange, tenant, effect string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of, a.oldest = map[string]arrival{}, make([]string, arrivalsMost)
	}
	delete(a.of, a.oldest[a.next])
	a.oldest[a.next] = exchange
	a.next = (a.next + 1) % arrivalsMost
	a.of[exchange] = arrival{tenant, effect}
}

func (a *arrivals) take(exchange string) (tenant, effect string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found, ok := a.of[exchange]
	delete(a.of, exchange)
	return found.tenant, found.effect, ok
}
