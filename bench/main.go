package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"time"
)

// bench is one run.
type bench struct {
	dir       string // for logs and ledgers
	bin       string
	duration  time.Duration // of each side of a comparison, about
	heapCalls int
	table     table
}

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(800) // as cmd/undolog does
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) > 3 && os.Args[1] == relayCommand {
		exitOn(relay(ctx, os.Args[2], os.Args[3:]))
		return
	}
	b := &bench{}
	flag.StringVar(&b.bin, "bin", "bin", "`DIR` with the programs undolog and payments")
	flag.DurationVar(&b.duration, "duration", 5*time.Second, "how long each side of a comparison is measured, about")
	flag.IntVar(&b.heapCalls, "heap-calls", 100_000, "calls over which the heap must stay flat")
	flag.Parse()
	exitOn(b.run(ctx))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "undolog-bench-"); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	for _, part := range []struct {
		name    string
		measure func(context.Context) error
	}{
		{"interceptors in process", b.phases},
		{"policy and schemas", b.policies},
		{"gateway against direct", b.roundTrips},
		{"durable effects", b.throughput},
		{"heap", b.heap},
	} {
		fmt.Fprintf(os.Stderr, "measuring: %s\n", part.name)
		b.table.section(part.name)
		if err := part.measure(ctx); err != nil {
			return fmt.Errorf("measure %s: %w", part.name, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Printf("%s, %s/%s, %d CPUs\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	return b.table.print(os.Stdout)
}
