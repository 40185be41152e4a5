// Command embed is an MCP server that makes its own tools safe to repeat, without a gateway in front: a
// tool that transfers money and one that tells a balance, the effect interceptors and a log beside them.
// Transfers are recorded before they happen and made once, however often the same call is sent; a
// validator of its own refuses large sums.
//
//	go run ./examples/embed -log bank.db
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/effectchain"
	"github.com/undolog/undolog/effectinterceptor"
	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
)

func main() {
	path := flag.String("log", "bank.db", "`FILE` of the effect log")
	flag.Parse()
	if err := run(context.Background(), *path, &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}

// run serves one connection over the log at path.
func run(ctx context.Context, path string, transport mcp.Transport) (err error) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	driver, err := sqlite.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	effects, err := store.Open(driver, &store.Options{Logger: logger})
	if err != nil {
		return errors.Join(err, driver.Close())
	}
	defer func() { err = errors.Join(err, effects.Close()) }()

	ei := effectinterceptor.New(effects, &effectinterceptor.Options{Policy: policy(), Delivery: true, Logger: logger})
	defer ei.Close()
	c, err := effectchain.New(ei, &effectchain.Options{Server: "bank", Logger: logger})
	if err != nil {
		return err
	}
	if err := c.Use(chain.Local("house", house()), nil); err != nil {
		return err
	}
	server := newBank().server()
	server.AddReceivingMiddleware(c.Middleware(&chain.MiddlewareOptions{Principal: caller}))
	err = server.Run(ctx, transport)

	drained, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(err, c.Drain(drained)) // calls under way are settled before the log is closed
}

// caller is who calls: on stdio whoever started this program. An equal call without an idempotency key is
// recognised as the same only where somebody is known to have made both.
func caller(mcp.Request) *interceptors.Principal {
	return &interceptors.Principal{Type: "service", ID: "agent:local"}
}
