package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/internal/pgcluster"
)

// pgbench is PostgreSQL's own program, with a script of ours.
type pgbench struct {
	bench   *bench
	db      *pgcluster.Database
	script  string
	payload string
}

// The scripts send their payload as a parameter each time, as we do.
const (
	insertOne  = "INSERT INTO single (id, payload) VALUES (gen_random_uuid(), :payload);\n"
	insertBoth = `SELECT gen_random_uuid() AS id \gset
INSERT INTO claim (id, signature, arguments) VALUES (:id, :id || 'and as many bytes as a digest', :payload);
INSERT INTO outcome (id, ordinal, answer) VALUES (:id, 1, :payload);
`
)

const baselineSchema = `
CREATE TABLE single (id uuid PRIMARY KEY, payload text NOT NULL);
CREATE TABLE claim (id uuid PRIMARY KEY, signature text NOT NULL UNIQUE, arguments text NOT NULL);
CREATE TABLE outcome (id uuid, ordinal int, answer text NOT NULL, PRIMARY KEY (id, ordinal));
`

func makeBaseline(ctx context.Context, db *pgcluster.Database) error {
	return as(ctx, db.URL, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, baselineSchema); err != nil {
			return fmt.Errorf("make tables: %w", err)
		}
		return nil
	})
}

// scripted is the way of a script, with so many bytes of payload.
func (b *bench) scripted(script string, payload int) openWorker {
	return func(ctx context.Context, db *pgcluster.Database, _ int) (worker, error) {
		return &pgbench{b, db, script, strings.Repeat("x", payload)}, makeBaseline(ctx, db)
	}
}

func (p *pgbench) work(ctx context.Context, callers int, d time.Duration) (*tally, error) {
	program, err := pgcluster.Program("pgbench")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(p.bench.dir, "pgbench-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte(p.script), 0o600); err != nil {
		return nil, fmt.Errorf("write script: %w", err)
	}
	seconds := max(1, int(d.Round(time.Second).Seconds()))
	args := []string{"-n", "-M", "prepared", "-j", strconv.Itoa(min(callers, 2)), "-c", strconv.Itoa(callers),
		"-T", strconv.Itoa(seconds), "-f", script, "-D", "payload=" + p.payload,
		"-l", "--log-prefix", "times", "--sampling-rate", "0.1", p.db.URL}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("run pgbench: %w\n%s", err, out)
	}
	t := &tally{cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if t.times, err = loggedTimes(dir); err != nil {
		return nil, err
	}
	return t, t.parse(string(out))
}

func (p *pgbench) close() error { return nil }

var (
	processed = regexp.MustCompile(`(?m)^number of transactions actually processed: (\d+)`)
	rate      = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)
)

// parse takes what pgbench says in the end; the time that it took to connect is not in its rate.
func (t *tally) parse(out string) error {
	n, r := processed.FindStringSubmatch(out), rate.FindStringSubmatch(out)
	if n == nil || r == nil {
		return fmt.Errorf("read what pgbench says: no rate in\n%s", out)
	}
	done, err := strconv.Atoi(n[1])
	if err != nil {
		return fmt.Errorf("read what pgbench says: %w", err)
	}
	perSecond, err := strconv.ParseFloat(r[1], 64)
	if err != nil {
		return fmt.Errorf("read what pgbench says: %w", err)
	}
	t.done, t.took = done, time.Duration(float64(done)/perSecond*float64(time.Second))
	return nil
}

// loggedTimes reads a tenth of the times from the logs of pgbench's threads.
func loggedTimes(dir string) (map[string][]time.Duration, error) {
	logs, _ := filepath.Glob(filepath.Join(dir, "times.*")) // the pattern is sound
	var times []time.Duration
	for _, path := range logs {
		log, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read pgbench's log: %w", err)
		}
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if f := strings.Fields(lines.Text()); len(f) > 2 {
				times = append(times, time.Duration(number(f[2]))*time.Microsecond)
			}
		}
		log.Close()
	}
	return map[string][]time.Duration{whole: times}, nil
}
