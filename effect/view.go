package effect

import (
	"encoding/json"
	"fmt"

	"cel.dev/cel-go/cel"
)

// view is a call as expressions see it: its arguments are read once for all of them.
type view struct {
	call  *Call
	args  map[string]any
	hints map[string]bool

	result  any // of a probe
	isError bool
}

func newView(call *Call) (*view, error) { return newViewOf(call, call.Annotations) }

// newViewOf is the view of a call whose tool has the annotations.
func newViewOf(call *Call, ann *Annotations) (*view, error) {
	args, err := celObject(call.Arguments)
	if err != nil {
		return nil, fmt.Errorf("read arguments: %w", err)
	}
	return &view{call: call, args: args, hints: ann.hints()}, nil
}

// answered adds what a probe was answered.
func (v *view) answered(result json.RawMessage, isError bool) (err error) {
	v.isError = isError
	if v.result, err = celJSON(result); err != nil {
		return fmt.Errorf("read result: %w", err)
	}
	return nil
}

// ResolveName implements cel.Activation.
func (v *view) ResolveName(name string) (any, bool) {
	switch name {
	case "args":
		return v.args, true
	case "principal":
		return v.call.Principal, true
	case "tenant":
		return v.call.Tenant, true
	case "server":
		return v.call.Server, true
	case "tool":
		return v.call.Tool, true
	case "run":
		return v.call.Run, true
	case "annotations":
		return v.hints, true
	case "key":
		return v.call.Key, true
	case "result":
		return v.result, true
	case "is_error":
		return v.isError, true
	}
	return nil, false
}

// Parent implements cel.Activation.
func (v *view) Parent() cel.Activation { return nil }
