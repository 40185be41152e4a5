package interceptors

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/undolog/undolog/internal/splice"
)

// MarshalJSON writes a number when both phases are equal, else an object without the phase that is 0.
func (p Priority) MarshalJSON() ([]byte, error) {
	if p.Request == p.Response {
		return splice.Encode(p.Request)
	}
	return splice.Encode(struct {
		Request  int32 `json:"request,omitempty"`
		Response int32 `json:"response,omitempty"`
	}{p.Request, p.Response})
}

// UnmarshalJSON reads a number for both phases, or an object in which a missing phase is 0.
func (p *Priority) UnmarshalJSON(raw []byte) error {
	if !isObject(raw) {
		var both int32
		if err := json.Unmarshal(raw, &both); err != nil {
			return fmt.Errorf("decode priority: %w", err)
		}
		*p = Priority{both, both}
		return nil
	}
	var each struct{ Request, Response int32 }
	if err := json.Unmarshal(raw, &each); err != nil {
		return fmt.Errorf("decode priority: %w", err)
	}
	*p = Priority{each.Request, each.Response}
	return nil
}

// readPriority reads the priority of somebody's descriptor, nil when there is none. exact is false when it is
// not a pair of int32: a number is then the nearest int32 that is not above it, so that it still orders as it
// was meant, and anything else is no priority. Its interceptor runs in any case: one that was left out for its
// hint would be a guard that fails open.
func readPriority(raw json.RawMessage) (p *Priority, exact bool) {
	if len(raw) == 0 || isNull(raw) {
		return nil, true
	}
	if !isObject(raw) {
		both, read, exact := readInt32(raw)
		if !read {
			return nil, false
		}
		return &Priority{both, both}, exact
	}
	p, exact = new(Priority), true
	err := splice.Each(raw, func(name string, value []byte) {
		phase := map[string]*int32{"request": &p.Request, "response": &p.Response}[name]
		if phase == nil || isNull(value) {
			return
		}
		n, _, whole := readInt32(value)
		*phase, exact = n, exact && whole
	})
	return p, exact && err == nil
}

// readInt32 reads a number; read is false, and the number 0, when it is none, and whole when it is an int32.
func readInt32(raw []byte) (n int32, read, whole bool) {
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false, false
	}
	near := min(max(math.Floor(f), math.MinInt32), math.MaxInt32)
	return int32(near), true, near == f
}
