package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// sample is what the database has done since it was started.
type sample struct {
	syncs int64 // of its log
	wal   int64 // bytes
	cpu   time.Duration
}

func (s sample) since(before sample) sample {
	return sample{s.syncs - before.syncs, s.wal - before.wal, s.cpu - before.cpu}
}

// sample reads the counters. Connections tell theirs when they are closed.
func (b *bench) sample(ctx context.Context) (s sample, err error) {
	err = b.admin(ctx, func(conn *pgx.Conn) error {
		var version int
		if err := conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
			return err
		}
		syncs := `SELECT wal_sync FROM pg_stat_wal`
		if version >= 180000 {
			syncs = `SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'`
		}
		if err := conn.QueryRow(ctx, syncs).Scan(&s.syncs); err != nil {
			return err
		}
		return conn.QueryRow(ctx, `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&s.wal)
	})
	if err != nil {
		return s, fmt.Errorf("read counters: %w", err)
	}
	s.cpu, err = treeCPU(b.cluster.PID())
	return s, err
}

// quiet lets the database finish what earlier turns have left behind, so that no turn pays for another's, and
// reads the counters.
func (b *bench) quiet(ctx context.Context) (sample, error) {
	err := b.admin(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CHECKPOINT")
		return err
	})
	if err != nil {
		return sample{}, fmt.Errorf("checkpoint: %w", err)
	}
	return b.sample(ctx)
}

// describe says what the database is, and what its figures depend on.
func (b *bench) describe(ctx context.Context) (v string, err error) {
	err = b.admin(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `
			SELECT 'PostgreSQL ' || current_setting('server_version') || (
				SELECT string_agg(', ' || name || ' ' || current_setting(name), '' ORDER BY name) FROM pg_settings
				WHERE name IN ('fsync', 'synchronous_commit', 'wal_sync_method', 'full_page_writes', 'shared_buffers', 'max_wal_size', 'wal_level', 'wal_compression'))`).Scan(&v)
	})
	return v, err
}

func (b *bench) admin(ctx context.Context, do func(*pgx.Conn) error) error {
	return as(ctx, b.cluster.URL(), do)
}

// as does something on a connection of its own.
func as(ctx context.Context, url string, do func(*pgx.Conn) error) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	return do(conn)
}

// treeCPU is what a process and its children have used, those that have ended included.
func treeCPU(pid int) (time.Duration, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return 0, errors.New("read CPU time: this needs Linux's /proc")
	}
	var ticks int64
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		f := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
		own, parent := path == fmt.Sprintf("/proc/%d/stat", pid), f[1] == strconv.Itoa(pid)
		if own || parent {
			ticks += number(f[11]) + number(f[12])
		}
		if own {
			ticks += number(f[13]) + number(f[14])
		}
	}
	const perSecond = 100 // USER_HZ, on every architecture that Go has
	return time.Duration(ticks) * time.Second / perSecond, nil
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64) // the kernel's own
	return n
}
