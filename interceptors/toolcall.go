package interceptors

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/undolog/undolog/internal/splice"
)

// ToolCall reads the payload of a tools/call request: the tool's name and its arguments, untouched bytes
// and nil when absent. Names are matched exactly and a member that occurs twice is an error, so that the
// call which is judged is the call that runs.
func ToolCall(payload json.RawMessage) (name string, arguments json.RawMessage, err error) {
	ms, err := members(payload)
	if err != nil {
		return "", nil, fmt.Errorf("read tool call: %w", err)
	}
	for _, m := range ms {
		switch m.name {
		case "name":
			var ok bool
			if name, ok = splice.Text(m.value); !ok {
				return "", nil, errors.New("read tool call: name is not a string")
			}
		case "arguments":
			arguments = m.value
		}
	}
	if name == "" {
		return "", nil, errors.New("read tool call: name is missing")
	}
	return name, arguments, nil
}
