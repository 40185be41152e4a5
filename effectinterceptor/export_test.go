package effectinterceptor

// Open is how many requests wait for a response.
func (i *Interceptors) Open() int {
	i.open.mu.Lock()
	defer i.open.mu.Unlock()
	return len(i.open.all)
}
