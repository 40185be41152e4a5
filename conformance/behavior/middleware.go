package behavior

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// TamperMiddleware changes the results of interceptor/invoke, by the name of the interceptor that they say
// they are of.
func TamperMiddleware(tampers map[string]func(json.RawMessage) (json.RawMessage, error)) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if err != nil || method != interceptors.MethodInvoke {
				return res, err
			}
			raw, err := json.Marshal(res)
			if err != nil {
				return nil, err
			}
			var name string
			if err := json.Unmarshal(splice.Get(raw, "interceptor"), &name); err != nil {
				return nil, err
			}
			tamper := tampers[name]
			if tamper == nil {
				return res, nil
			}
			if raw, err = tamper(raw); err != nil {
				return nil, err
			}
			return &changedResult{raw: raw}, nil
		}
	}
}

// changedResult is a result that goes out as these bytes.
type changedResult struct {
	mcp.ResultBase
	raw json.RawMessage
}

func (r *changedResult) MarshalJSON() ([]byte, error) { return r.raw, nil }

func (r *changedResult) UnmarshalJSON(raw []byte) error {
	r.raw = append(json.RawMessage(nil), raw...)
	return nil
}
