package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/internal/splice"
)

// encode writes a typed value of the SDK without escaping what HTML would need, so that strings in raw
// members keep their spelling.
func encode[T any](v T) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// withParams returns req with other params, decoded into a fresh value: decoded over the old ones, what
// an interceptor took out would stay in.
func withParams(req mcp.Request, params json.RawMessage) (mcp.Request, error) {
	switch r := req.(type) {
	case *mcp.ServerRequest[*mcp.CallToolParamsRaw]:
		return withToolParams(r, params)
	case *mcp.ServerRequest[*mcp.ListToolsParams]:
		return fresh(r, params)
	case *mcp.ServerRequest[*mcp.GetPromptParams]:
		return fresh(r, params)
	case *mcp.ServerRequest[*mcp.ListPromptsParams]:
		return fresh(r, params)
	case *mcp.ServerRequest[*mcp.ReadResourceParams]:
		return fresh(r, params)
	case *mcp.ServerRequest[*mcp.ListResourcesParams]:
		return fresh(r, params)
	case *mcp.ServerRequest[*mcp.ListResourceTemplatesParams]:
		return fresh(r, params)
	case *mcp.ServerRequest[*mcp.SubscribeParams]:
		return fresh(r, params)
	case *mcp.ServerRequest[*mcp.UnsubscribeParams]:
		return fresh(r, params)
	case *mcp.ServerRequest[*mcp.CompleteParams]:
		return fresh(r, params)
	case *mcp.ServerRequest[*mcp.SetLoggingLevelParams]:
		return fresh(r, params)
	case *mcp.ServerRequest[mcp.Params]: // a server sends
		p, err := freshParams(r.Params, params)
		return &mcp.ServerRequest[mcp.Params]{Session: r.Session, Params: p, Extra: r.Extra}, err
	case *mcp.ClientRequest[mcp.Params]: // a client sends
		p, err := freshParams(r.Params, params)
		return &mcp.ClientRequest[mcp.Params]{Session: r.Session, Params: p}, err
	case *mcp.ClientRequest[*mcp.CreateMessageWithToolsParams]:
		return freshAsked(r, params)
	case *mcp.ClientRequest[*mcp.ElicitParams]:
		return freshAsked(r, params)
	case *mcp.ClientRequest[*mcp.ListRootsParams]:
		return freshAsked(r, params)
	}
	return nil, fmt.Errorf("params of type %T cannot be changed", req.GetParams())
}

// freshAsked is fresh for what a client receives.
func freshAsked[T any, P paramsOf[T]](r *mcp.ClientRequest[P], params json.RawMessage) (*mcp.ClientRequest[P], error) {
	p := P(new(T))
	if err := jsonv2.Unmarshal(params, p); err != nil {
		return nil, err
	}
	return &mcp.ClientRequest[P]{Session: r.Session, Params: p}, nil
}

// freshParams decodes into a value of the type that is being sent.
func freshParams(old mcp.Params, params json.RawMessage) (mcp.Params, error) {
	if p, ok := old.(*mcp.CallToolParams); ok {
		return freshToolParams(p, params)
	}
	for _, p := range []mcp.Params{
		new(mcp.CreateMessageParams), new(mcp.CreateMessageWithToolsParams), new(mcp.ElicitParams), new(mcp.ListRootsParams),
		new(mcp.ListToolsParams), new(mcp.GetPromptParams), new(mcp.ListPromptsParams), new(mcp.ReadResourceParams),
		new(mcp.ListResourcesParams), new(mcp.ListResourceTemplatesParams), new(mcp.SubscribeParams),
		new(mcp.UnsubscribeParams), new(mcp.CompleteParams), new(mcp.SetLoggingLevelParams),
	} {
		if reflect.TypeOf(p) == reflect.TypeOf(old) {
			return p, jsonv2.Unmarshal(params, p)
		}
	}
	return nil, fmt.Errorf("params of type %T cannot be changed", old)
}

// freshToolParams keeps the digits of the arguments, which the type would decode into floats.
func freshToolParams(old *mcp.CallToolParams, params json.RawMessage) (mcp.Params, error) {
	read := new(mcp.CallToolParamsRaw)
	if err := jsonv2.Unmarshal(params, read); err != nil {
		return nil, err
	}
	p := &mcp.CallToolParams{Meta: read.Meta, Name: read.Name, InputResponses: old.InputResponses, RequestState: old.RequestState}
	if len(read.Arguments) > 0 {
		p.Arguments = read.Arguments
	}
	return p, nil
}

// typedResult decodes a result into the type that the sender of the method awaits. own, the target's
// answer, is nil when there was none.
func typedResult(method string, own *typedAnswer, raw json.RawMessage) (mcp.Result, error) {
	fresh := results[method]
	if fresh == nil && own != nil {
		return nil, fmt.Errorf("result of %s cannot be changed", method)
	}
	if fresh == nil {
		return nil, fmt.Errorf("%s cannot be answered in the target's place", method)
	}
	r := fresh()
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("decode result of %s: %w", method, err)
	}
	return r, nil
}

var results = map[string]func() mcp.Result{
	"sampling/createMessage":   func() mcp.Result { return new(mcp.CreateMessageWithToolsResult) },
	"elicitation/create":       func() mcp.Result { return new(mcp.ElicitResult) },
	"roots/list":               func() mcp.Result { return new(mcp.ListRootsResult) },
	"tools/call":               func() mcp.Result { return new(mcp.CallToolResult) },
	"tools/list":               func() mcp.Result { return new(mcp.ListToolsResult) },
	"prompts/get":              func() mcp.Result { return new(mcp.GetPromptResult) },
	"prompts/list":             func() mcp.Result { return new(mcp.ListPromptsResult) },
	"resources/read":           func() mcp.Result { return new(mcp.ReadResourceResult) },
	"resources/list":           func() mcp.Result { return new(mcp.ListResourcesResult) },
	"resources/templates/list": func() mcp.Result { return new(mcp.ListResourceTemplatesResult) },
	"completion/complete":      func() mcp.Result { return new(mcp.CompleteResult) },
}

// paramsOf is a pointer to a params struct.
type paramsOf[T any] interface {
	*T
	mcp.Params
}

// fresh decodes with exact member names: the standard library's decoder would take "Arguments" for
// "arguments".
func fresh[T any, P paramsOf[T]](r *mcp.ServerRequest[P], params json.RawMessage) (*mcp.ServerRequest[P], error) {
	p := P(new(T))
	if err := jsonv2.Unmarshal(params, p); err != nil {
		return nil, err
	}
	out := *r
	out.Params = p
	return &out, nil
}

var errDigest = errors.New("what would be sent is not what the request phase left")

// withToolParams also compares what is about to be sent with what the request phase left.
func withToolParams(r *mcp.ServerRequest[*mcp.CallToolParamsRaw], params json.RawMessage) (mcp.Request, error) {
	out, err := fresh(r, params)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(out.Params.Arguments, splice.Get(params, "arguments")) ||
		!sameJSON(quoted(out.Params.Name), splice.Get(params, "name")) {
		return nil, errDigest
	}
	return out, nil
}

// rawResult is a result that goes out as the bytes it is. The SDK adds members to _meta of what it sends;
// they are added to the bytes where those lack them.
type rawResult struct {
	mcp.ResultBase
	raw json.RawMessage
}

// stateless is the first revision without sessions, in which every result says what type it is.
const stateless = "2026-07-28"

func newRawResult(raw json.RawMessage, protocol string) (*rawResult, error) {
	if protocol >= stateless && isObject(raw) && splice.Get(raw, "resultType") == nil {
		var err error
		if raw, err = splice.Set(raw, []byte(`"complete"`), "resultType"); err != nil {
			return nil, fmt.Errorf("set result type: %w", err)
		}
	}
	return &rawResult{raw: raw}, nil
}

// MarshalJSON writes the bytes.
func (r *rawResult) MarshalJSON() ([]byte, error) {
	out := r.raw
	meta := splice.Get(out, metaName)
	if meta != nil && !isObject(meta) {
		return out, nil
	}
	for _, name := range slices.Sorted(maps.Keys(r.Meta)) {
		if splice.Get(meta, name) != nil {
			continue
		}
		encoded, err := json.Marshal(r.Meta[name])
		if err != nil {
			return nil, fmt.Errorf("encode _meta %s: %w", name, err)
		}
		if out, err = splice.Set(out, encoded, metaName, name); err != nil {
			return nil, fmt.Errorf("set _meta %s: %w", name, err)
		}
	}
	return out, nil
}
