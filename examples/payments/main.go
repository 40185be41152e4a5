package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/examples/payments/ledger"
)

type options struct {
	ledger     string
	faults     string
	initial    faults.Set
	honourKeys bool
	noSync     bool
	http       string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, parseFlags()); err != nil {
		fmt.Fprintln(os.Stderr, "payments:", err)
		os.Exit(1)
	}
}

func parseFlags() *options {
	o := &options{initial: faults.Set{}}
	flag.StringVar(&o.ledger, "ledger", "payments.jsonl", "`FILE` to which effects are appended")
	flag.StringVar(&o.faults, "faults", "", "control `FILE`, read at each call (default: the ledger's name and .faults)")
	flag.Func("fault", "`TOOL=RULE` to start with, such as charge={\"after\":\"kill\",\"times\":1}, unless the control file is there already", o.addFault)
	flag.BoolVar(&o.honourKeys, "honour-keys", false, "answer a repeated idempotency key with the first effect")
	flag.BoolVar(&o.noSync, "no-sync", false, "do not sync the ledger after each effect")
	flag.StringVar(&o.http, "http", "", "serve Streamable HTTP on `ADDR` and not stdio")
	flag.Parse()
	if o.faults == "" {
		o.faults = o.ledger + ".faults"
	}
	return o
}

func (o *options) addFault(value string) error {
	tool, rule, ok := strings.Cut(value, "=")
	if !ok {
		return errors.New("want TOOL=RULE")
	}
	set, err := faults.Parse(fmt.Appendf(nil, "{%q:%s}", tool, rule))
	if err != nil {
		return err
	}
	o.initial[tool] = set[tool]
	return nil
}

func run(ctx context.Context, o *options) error {
	if err := writeInitial(o.faults, o.initial); err != nil {
		return err
	}
	book, err := ledger.Open(o.ledger, &ledger.Options{HonourKeys: o.honourKeys, NoSync: o.noSync})
	if err != nil {
		return err
	}
	defer book.Close()
	gone := make(chan struct{})
	server := newServer(book, o.faults, gone)
	if o.http != "" {
		return serveHTTP(ctx, server, o.http, gone)
	}
	return serveStdio(ctx, server, gone)
}

// writeInitial leaves a control file that is there alone: a server that is started again after a crash
// must not begin its faults anew.
func writeInitial(path string, set faults.Set) error {
	if len(set) == 0 {
		return nil
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return faults.Write(path, set)
}

func serveStdio(ctx context.Context, server *mcp.Server, gone chan struct{}) error {
	in := &endSignal{ReadCloser: os.Stdin, gone: gone}
	err := server.Run(ctx, &mcp.IOTransport{Reader: in, Writer: os.Stdout, MaxLineLength: -1})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// endSignal closes gone when its reader ends, so that calls which never answer let the server end. Its
// Read is called by one goroutine.
type endSignal struct {
	io.ReadCloser
	gone  chan struct{}
	ended bool
}

func (e *endSignal) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil && !e.ended {
		e.ended = true
		close(e.gone)
	}
	return n, err
}
