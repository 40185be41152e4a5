package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/undolog/undolog/internal/pgcluster"
)

// bench is one run.
type bench struct {
	duration time.Duration // of a turn, about
	rounds   int
	callers  []int
	only     string
	matching *regexp.Regexp
	rows     int
	dbos     bool
	settings map[string]string

	dir     string
	cluster *pgcluster.Cluster
	version string
	table   table
}

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(800) // as cmd/undolog does
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{settings: map[string]string{"max_connections": "600"}}
	matching := flag.String("ways", "", "`REGEXP` of the ways to measure, besides that which others are compared with")
	callers := flag.String("callers", "1,8,64,256", "`LIST` of how many work at once")
	flag.DurationVar(&b.duration, "duration", 3*time.Second, "how long a turn is, about; whole seconds")
	flag.IntVar(&b.rounds, "rounds", 3, "how many turns each way of doing the work has")
	flag.StringVar(&b.only, "only", "", "measure `WHAT` alone: effects, growth or replication")
	flag.IntVar(&b.rows, "rows", 1_000_000, "effects in the log whose growth is measured")
	flag.BoolVar(&b.dbos, "dbos", true, "measure DBOS Transact too, which is fetched and built")
	flag.Func("set", "a `NAME=VALUE` of postgresql.conf, any number of times", b.set)
	flag.Parse()
	err := errors.Join(b.parseCallers(*callers), b.parseWays(*matching))
	if err == nil {
		err = b.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) parseCallers(list string) error {
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("parse callers %q: want numbers from 1, with commas between them", list)
		}
		b.callers = append(b.callers, n)
	}
	return nil
}

func (b *bench) set(assignment string) error {
	name, value, found := strings.Cut(assignment, "=")
	if !found {
		return errors.New("want NAME=VALUE")
	}
	b.settings[name] = value
	return nil
}

func (b *bench) parseWays(pattern string) (err error) {
	if b.matching, err = regexp.Compile(pattern); err != nil {
		return fmt.Errorf("parse ways: %w", err)
	}
	return nil
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "undolog-bench-"); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	for _, part := range []struct {
		name    string
		set     map[string]string
		measure func(context.Context) error
	}{
		{"effects", nil, b.effects},
		{"growth", nil, b.growth},
		{"replication", map[string]string{"wal_level": "logical"}, b.replication},
	} {
		if b.only != "" && b.only != part.name {
			continue
		}
		if err := b.onCluster(ctx, part.set, part.measure); err != nil {
			return fmt.Errorf("measure %s: %w", part.name, err)
		}
	}
	fmt.Printf("%s; %s, %s/%s, %d CPUs shared by all; %s\n\n", b.version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		time.Now().UTC().Format(time.DateOnly))
	return b.table.print(os.Stdout)
}

// onCluster measures something on a cluster of its own.
func (b *bench) onCluster(ctx context.Context, set map[string]string, measure func(context.Context) error) (err error) {
	settings := maps.Clone(b.settings)
	maps.Copy(settings, set)
	if b.cluster, err = pgcluster.New(ctx, &pgcluster.Options{Settings: settings}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cluster.Close()) }()
	if b.version == "" {
		if b.version, err = b.describe(ctx); err != nil {
			return fmt.Errorf("describe server: %w", err)
		}
	}
	return measure(ctx)
}
