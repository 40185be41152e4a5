package effectinterceptor

import "sync"

// background are the goroutines that record outcomes.
type background struct {
	mu     sync.Mutex
	closed bool
	tasks  sync.WaitGroup
}

// start runs a task that close waits for; false when it was closed.
func (b *background) start(task func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.tasks.Go(task)
	return true
}

func (b *background) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.tasks.Wait()
}
