package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	}
	return nil, fmt.Errorf("params of type %T cannot be changed", req.GetParams())
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
