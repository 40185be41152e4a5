package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/undolog/undolog/internal/mcptest"
)

// Where the trace of _meta and that of the context differ, the record has the one of _meta, and the log on
// standard error both (row W16).
func TestServe_RecordsTheTraceOfMeta(t *testing.T) {
	const trace, claimed = "0af7651916cd43dd8448eb211c80319c", "ffffffffffffffffffffffffffffffff"
	db := filepath.Join(t.TempDir(), "log.db")
	host := mcptest.Start(t, mcptest.Build(t, "./cmd/undolog"), "serve", "--stdio", "--db", db)
	host.Initialize("2025-11-25")
	host.MustSend(mcptest.Request("7", "interceptor/invoke", `{"name":"undolog/effect","event":"tools/call","phase":"request",`+
		`"payload":{"name":"charge","arguments":{"amount":10}},"context":{"traceId":"`+claimed+`","principal":{"type":"user","id":"ann"}},`+
		`"_meta":{"traceparent":"00-`+trace+`-b7ad6b7169203331-01"}}`))
	if answer := host.Response("7"); answer.Result == nil {
		t.Fatalf("invoke: %s", answer.Raw)
	}
	host.CloseStdin()
	host.Wait()
	if said := host.Stderr(); !strings.Contains(said, trace) || !strings.Contains(said, claimed) {
		t.Errorf("the difference is not noted: %s", said)
	}
	out, code := said(t, "--db", db, "log", "--json")
	if code != exitOK || !strings.Contains(out, `"trace":"`+trace+`"`) || strings.Contains(out, claimed) {
		t.Errorf("exit code %d, recorded %s", code, out)
	}
}
