// Command dbos runs durable workflows of one step with DBOS Transact for Go, as a baseline of what the effect
// log costs, and reports as JSON. It is a module of its own, so that nothing of DBOS is a dependency of the
// project's.
//
//	go run -C bench/dbos . -url postgres://… -callers 64 -duration 5s
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// report is what is measured; the reader of it has the same type.
type report struct {
	Workflows int           `json:"workflows"`
	Warmup    int           `json:"warmup"` // workflows before the time was taken
	Took      time.Duration `json:"took"`
	P50       time.Duration `json:"p50"`
	P99       time.Duration `json:"p99"`
}

func main() {
	url := flag.String("url", "", "the database's `URL`")
	callers := flag.Int("callers", 1, "how many run workflows at once")
	duration := flag.Duration("duration", 5*time.Second, "for how long; 0: make the schema and end")
	flag.Parse()
	if err := run(*url, *callers, *duration); err != nil {
		fmt.Fprintln(os.Stderr, "dbos:", err)
		os.Exit(1)
	}
}

func run(url string, callers int, d time.Duration) error {
	ctx, err := dbos.NewContext(context.Background(), dbos.Config{
		DatabaseURL: url, AppName: "undolog-bench", ApplicationVersion: "1", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return fmt.Errorf("make context: %w", err)
	}
	dbos.RegisterWorkflow(ctx, charge)
	if err := dbos.Launch(ctx); err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	defer dbos.Shutdown(ctx, 10*time.Second)
	if d == 0 {
		return nil
	}
	warmup, err := workflows(ctx, callers, d/10) // connections are made
	if err != nil {
		return err
	}
	r, err := workflows(ctx, callers, d)
	if err != nil {
		return err
	}
	r.Warmup = warmup.Workflows
	return json.NewEncoder(os.Stdout).Encode(r)
}

// padding makes arguments and answer as large as those of the effects that are measured beside it.
var padding = strings.Repeat("x", 1000)

func charge(ctx dbos.Context, arguments string) (string, error) {
	return dbos.RunAsStep(ctx, func(context.Context) (string, error) { return padding, nil })
}

func workflows(ctx dbos.Context, callers int, d time.Duration) (*report, error) {
	times := make([][]time.Duration, callers)
	errs := make([]error, callers)
	var running sync.WaitGroup
	begun := time.Now()
	for i := range callers {
		running.Go(func() {
			for time.Since(begun) < d && errs[i] == nil {
				started := time.Now()
				errs[i] = workflow(ctx)
				times[i] = append(times[i], time.Since(started))
			}
		})
	}
	running.Wait()
	took := time.Since(begun)
	all := slices.Concat(times...)
	slices.Sort(all)
	return &report{Workflows: len(all), Took: took, P50: all[len(all)/2], P99: all[len(all)*99/100]}, errors.Join(errs...)
}

func workflow(ctx dbos.Context) error {
	handle, err := dbos.RunWorkflow(ctx, charge, padding)
	if err != nil {
		return fmt.Errorf("run workflow: %w", err)
	}
	if _, err := handle.GetResult(); err != nil {
		return fmt.Errorf("await workflow: %w", err)
	}
	return nil
}
