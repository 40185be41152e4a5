package splice

import "fmt"

// Each calls f with every member of obj in its order; value shares memory with obj. It fails, before any
// call, when obj is not an object.
func Each(obj []byte, f func(name string, value []byte)) error {
	ms, _, err := members(obj)
	if err != nil {
		return fmt.Errorf("read members: %w", err)
	}
	for _, m := range ms {
		f(m.name, obj[m.valueStart:m.valueEnd])
	}
	return nil
}
