package interceptors

import (
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/undolog/undolog/internal/splice"
)

// WireError is the JSON-RPC error that an invoker is sent for an error of this package. A handler's own
// text never reaches it: whatever has no wire form of its own becomes a generic −32603.
func WireError(err error) *jsonrpc.Error {
	var (
		respond  *RespondError
		block    *BlockError
		params   *ParamsError
		notFound *NotFoundError
		hook     *HookError
		timeout  *TimeoutError
		crash    *CrashError
		wire     *jsonrpc.Error
	)
	switch {
	case errors.As(err, &crash): // first: what it wraps is not for the wire
		return wireCrash(crash)
	case errors.As(err, &respond):
		return wireRespond(respond)
	case errors.As(err, &block):
		return wireBlock(block)
	case errors.As(err, &params):
		return wireParams(params)
	case errors.As(err, &notFound):
		return wireData(jsonrpc.CodeInvalidParams, "Unknown interceptor", struct {
			Name        string `json:"name"`
			Interceptor string `json:"interceptor"`
		}{notFound.Name, notFound.Name})
	case errors.As(err, &hook):
		return wireHook(hook)
	case errors.As(err, &timeout):
		return wireData(jsonrpc.CodeInternalError, "Interceptor execution timeout", struct {
			Interceptor string `json:"interceptor"`
			Reason      string `json:"reason"`
			TimeoutMs   int64  `json:"timeoutMs"`
			Phase       Phase  `json:"phase"`
		}{timeout.Interceptor, "timeout", timeout.TimeoutMs, timeout.Phase})
	case errors.As(err, &wire):
		return wire
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "Internal error"}
}

func wireCrash(e *CrashError) *jsonrpc.Error {
	return wireData(jsonrpc.CodeInternalError, "Interceptor execution failed", struct {
		Interceptor string `json:"interceptor"`
		Reason      string `json:"reason"`
	}{e.Interceptor, e.Reason})
}

func wireParams(e *ParamsError) *jsonrpc.Error {
	problems := e.Problems
	if problems == nil {
		problems = []Problem{}
	}
	return wireData(jsonrpc.CodeInvalidParams, "Invalid params", struct {
		Name   string    `json:"name"`
		Errors []Problem `json:"errors"`
	}{e.Name, problems})
}

func wireHook(e *HookError) *jsonrpc.Error {
	shown := Descriptor{Hooks: e.Hooks}.shownHooks()
	return wireData(jsonrpc.CodeInvalidParams, "Hook not advertised by interceptor", struct {
		Name            string `json:"name"`
		Interceptor     string `json:"interceptor"`
		Event           string `json:"event"`
		Phase           Phase  `json:"phase"`
		AdvertisedHooks []Hook `json:"advertisedHooks"`
	}{e.Name, e.Name, e.Event, e.Phase, shown})
}

func wireBlock(e *BlockError) *jsonrpc.Error {
	w := &jsonrpc.Error{Code: e.Code, Message: e.Message, Data: e.Data}
	if w.Code == 0 {
		w.Code = jsonrpc.CodeInternalError
	}
	if w.Message == "" {
		w.Message = "Blocked by an interceptor"
	}
	return w
}

// wireRespond writes the answer under RespondKey and the members of Info beside it.
func wireRespond(e *RespondError) *jsonrpc.Error {
	answer := member{"result", e.Result}
	if e.Err != nil {
		answer = member{"error", e.Err}
	}
	data, err := respondData(answer, e.Info)
	if err != nil {
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "Internal error"}
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: e.Error(), Data: data}
}

func respondData(answer member, info json.RawMessage) (json.RawMessage, error) {
	inner := append(appendMembers([]byte{'{'}, answer), '}')
	data := appendMembers([]byte{'{'}, member{RespondKey, inner})
	if info != nil {
		ms, err := members(info)
		if err != nil {
			return nil, err
		}
		for _, m := range ms {
			if m.name != RespondKey {
				data = appendMembers(data, m)
			}
		}
	}
	return append(data, '}'), nil
}

// readRespond is the reverse of wireRespond; nil when the data has no answer in the target's place.
func readRespond(data json.RawMessage) *RespondError {
	ms, err := members(data)
	if err != nil {
		return nil
	}
	var answer *RespondError
	info := []byte{'{'}
	for _, m := range ms {
		if m.name != RespondKey {
			info = appendMembers(info, m)
			continue
		}
		if answer = readAnswer(m.value); answer == nil {
			return nil
		}
	}
	if answer != nil && len(info) > 1 {
		answer.Info = append(info, '}')
	}
	return answer
}

func readAnswer(raw json.RawMessage) *RespondError {
	ms, err := members(raw)
	if err != nil {
		return nil
	}
	e := new(RespondError)
	for _, m := range ms {
		switch m.name {
		case "result":
			e.Result = m.value
		case "error":
			e.Err = m.value
		}
	}
	if e.check() != nil {
		return nil
	}
	return e
}

// check reports an answer that has not exactly one of Result and Err, or whose parts are not JSON.
func (e *RespondError) check() error {
	part := e.Result
	if e.Err != nil {
		part = e.Err
	}
	switch {
	case (e.Result == nil) == (e.Err == nil):
		return errors.New("an answer in the target's place needs a result or an error, not both")
	case !isRecorded(part):
		return errors.New("an answer in the target's place is not JSON")
	case e.Info != nil && (!isObject(e.Info) || !isValid(e.Info)):
		return errors.New("the info of an answer in the target's place is not a JSON object")
	}
	return nil
}

// wireData builds an error whose data are plain strings and numbers, which always encode.
func wireData[T any](code int64, message string, data T) *jsonrpc.Error {
	raw, err := splice.Encode(data)
	if err != nil {
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "Internal error"}
	}
	return &jsonrpc.Error{Code: code, Message: message, Data: raw}
}
