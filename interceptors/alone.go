package interceptors

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// MCPServer makes an MCP server that serves the interceptors and nothing else. It declares tools and lists
// none, by which clients that try a server with its list of tools get on; to ask it for prompts or anything
// that it does not declare is to call a method that is not there. impl defaults to "interceptors" without a
// version.
func (s *Server) MCPServer(impl *mcp.Implementation) (*mcp.Server, error) {
	if impl == nil {
		impl = &mcp.Implementation{Name: "interceptors"}
	}
	capabilities := s.Capabilities()
	capabilities.Tools = &mcp.ToolCapabilities{}
	server := mcp.NewServer(impl, &mcp.ServerOptions{Capabilities: capabilities, Logger: s.log})
	if err := s.Install(server); err != nil {
		return nil, err
	}
	server.AddReceivingMiddleware(refuseUndeclared)
	return server, nil
}

// undeclared are methods of capabilities that a server of interceptors alone does not declare. The SDK
// answers some of them all the same, with empty lists.
var undeclared = map[string]bool{
	"prompts/list": true, "prompts/get": true,
	"resources/list": true, "resources/templates/list": true, "resources/read": true,
	"resources/subscribe": true, "resources/unsubscribe": true,
	"completion/complete": true, "logging/setLevel": true,
}

func refuseUndeclared(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if undeclared[method] {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found"}
		}
		return next(ctx, method, req)
	}
}
