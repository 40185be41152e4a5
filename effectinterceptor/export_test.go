package effectinterceptor

import "github.com/undolog/undolog/effect"

// Open is how many requests wait for a response.
func (i *Interceptors) Open() int {
	i.open.mu.Lock()
	defer i.open.mu.Unlock()
	return len(i.open.all)
}

// Refusals bounds what is noted of stopped calls; end notes what was counted.
func Refusals(note func(effect.Event)) (add func(ev effect.Event, by string), end func()) {
	f := &tally{note: note, most: mostStops}
	return f.add, f.close
}
