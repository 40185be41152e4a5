package splice

import (
	"bytes"
	"fmt"
)

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

// Scan is Each without an allocation: name is valid during the call only, and what is wrong with obj is
// found after the calls for what stands before it.
func Scan(obj []byte, f func(name, value []byte)) error {
	_, err := walk(obj, func(name []byte, m member) bool {
		f(name, obj[m.valueStart:m.valueEnd])
		return true
	})
	if err != nil {
		return fmt.Errorf("scan members: %w", err)
	}
	return nil
}

// MayHold is the cheap question that spares most texts the reading: whether a member name of a JSON text
// can begin with one of the beginnings, as it is spelled or with an escape in it. It says yes too often,
// never no wrongly.
func MayHold(text []byte, beginnings ...string) bool {
	for _, b := range beginnings {
		for at := 0; ; at++ {
			i := bytes.Index(text[at:], []byte(b))
			if i < 0 {
				break
			}
			if at += i; at > 0 && text[at-1] == '"' {
				return true
			}
		}
	}
	return hasEscape(text)
}

// hasEscape reports whether a text has an escape by which a letter can be spelled.
func hasEscape(text []byte) bool {
	for rest := text; ; {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 || i+1 == len(rest) {
			return false
		}
		if rest[i+1] == 'u' {
			return true
		}
		rest = rest[i+1:]
	}
}
