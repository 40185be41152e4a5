package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/undolog/undolog/internal/pgcluster"
)

// dbos runs the program of bench/dbos.
type dbos struct {
	program string
	url     string
}

// dbosReport is what it says in the end.
type dbosReport struct {
	Workflows int           `json:"workflows"`
	Warmup    int           `json:"warmup"`
	Took      time.Duration `json:"took"`
	P50       time.Duration `json:"p50"`
	P99       time.Duration `json:"p99"`
}

// buildDBOS builds it, in the directory of the module that it is.
func (b *bench) buildDBOS(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find module: %w", err)
	}
	program := filepath.Join(b.dir, "dbos")
	source := filepath.Join(filepath.Dir(strings.TrimSpace(string(root))), "bench", "dbos")
	if out, err := exec.CommandContext(ctx, "go", "build", "-C", source, "-o", program, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build bench/dbos: %w\n%s", err, out)
	}
	return program, nil
}

// workflows is the way of DBOS.
func workflows(program string) openWorker {
	return func(ctx context.Context, db *pgcluster.Database, callers int) (worker, error) {
		return openDBOS(ctx, program, db, callers)
	}
}

// openDBOS makes its schema, and gives it more connections than its 20 when there are more callers.
func openDBOS(ctx context.Context, program string, db *pgcluster.Database, callers int) (worker, error) {
	d := &dbos{program, fmt.Sprintf("%s?pool_max_conns=%d", db.URL, min(max(callers, 20), 64))}
	if out, err := exec.CommandContext(ctx, d.program, "-url", d.url, "-duration", "0s").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make schema of DBOS: %w\n%s", err, out)
	}
	return d, nil
}

func (w *dbos) work(ctx context.Context, callers int, d time.Duration) (*tally, error) {
	cmd := exec.CommandContext(ctx, w.program, "-url", w.url, "-callers", strconv.Itoa(callers), "-duration", d.String())
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run workflows: %w", err)
	}
	var r dbosReport
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, fmt.Errorf("read report of DBOS: %w", err)
	}
	t := &tally{done: r.Workflows, warmup: r.Warmup, took: r.Took, cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	t.times = map[string][]time.Duration{whole: {r.P50, r.P99}}
	return t, nil
}

func (w *dbos) close() error { return nil }
