package gateway_test

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/undolog/undolog/gateway"
)

func BenchmarkParseMessage(b *testing.B) {
	raw := []byte(`{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"t","arguments":{"text":"` +
		strings.Repeat("lorem ipsum ", 80) + `","n":[1,2,3]},"_meta":{"progressToken":1}}}`)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := gateway.ParseMessage(raw, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkServe is one request at a time through the relay, from the agent and back, over in-memory
// pipes: governed by a chain without interceptors, and not governed.
func BenchmarkServe(b *testing.B) {
	for name, request := range map[string]string{
		"governed":   `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":"` + strings.Repeat("x", 1000) + `"}}}`,
		"ungoverned": `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"` + strings.Repeat("x", 1000) + `"}}`,
	} {
		b.Run(name, func(b *testing.B) {
			toRelay, in := io.Pipe()
			out, fromRelay := io.Pipe()
			g := gateway.New(&gateway.Options{Chain: newChain(b, nil), Dial: echoUpstream})
			served := make(chan error, 1)
			go func() {
				served <- g.Serve(context.Background(), gateway.NewLineConn(toRelay, fromRelay, nil), gateway.AgentInfo{})
			}()
			answers := bufio.NewReader(out)
			b.ReportAllocs()
			for b.Loop() {
				io.WriteString(in, request+"\n")
				if _, err := answers.ReadSlice('\n'); err != nil {
					b.Fatal(err)
				}
			}
			in.Close()
			if err := <-served; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// echoUpstream answers every request at once.
func echoUpstream(context.Context, *gateway.AgentInfo) (gateway.Conn, error) {
	toUpstream, fromRelay := io.Pipe()
	toRelay, fromUpstream := io.Pipe()
	go func() {
		defer fromUpstream.Close()
		lines := bufio.NewReader(toUpstream)
		for {
			if _, err := lines.ReadSlice('\n'); err != nil {
				return
			}
			io.WriteString(fromUpstream, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`+"\n")
		}
	}()
	return gateway.NewLineConn(toRelay, fromRelay, nil), nil
}
