package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// serveHTTP serves until ctx ends. Calls under way are cut off then.
func serveHTTP(ctx context.Context, server *mcp.Server, addr string, gone chan struct{}) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/mcp\n", listener.Addr())
	web := &http.Server{Handler: newHandler(server), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() {
		close(gone)
		web.Close()
	})
	if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// newHandler serves both generations on one endpoint: 2026-07-28 is served without sessions, all
// before it with them.
func newHandler(server *mcp.Server) http.Handler {
	get := func(*http.Request) *mcp.Server { return server }
	stateless := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: 64 << 20,
	})
	stateful := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{MaxRequestBodyBytes: 64 << 20})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= "2026-07-28" {
			stateless.ServeHTTP(w, r)
			return
		}
		stateful.ServeHTTP(w, r)
	})
}
