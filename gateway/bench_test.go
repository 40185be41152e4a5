package gateway_test

import (
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
