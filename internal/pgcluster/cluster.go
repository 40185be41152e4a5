package pgcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options are what may be set about a Cluster; nil stands for all defaults.
type Options struct {
	// Settings are lines of postgresql.conf. Defaults to 300 connections, and to PostgreSQL's own
	// defaults for everything else, durability included.
	Settings map[string]string
}

// Cluster is a PostgreSQL server with data of its own. Its methods are not safe for concurrent use, but
// for URL, SocketURL and PID.
type Cluster struct {
	sentry   *sentry
	programs string
	port     *port
	password string
	server   *server // nil while it is stopped
}

// Mode is a way of stopping.
type Mode string

// The ways of stopping a cluster.
const (
	Fast      Mode = "fast"      // connections are ended, what is committed is written to its place
	Immediate Mode = "immediate" // everything ends at once, the next start recovers from the log
	Crash     Mode = "crash"     // the server is killed with SIGKILL
)

var signals = map[Mode]os.Signal{Fast: syscall.SIGINT, Immediate: syscall.SIGQUIT, Crash: syscall.SIGKILL}

// New makes a cluster and starts it. It listens on the loopback address and on a socket in its directory,
// and asks for passwords on both.
func New(ctx context.Context, opts *Options) (*Cluster, error) {
	if opts == nil {
		opts = &Options{}
	}
	initdb, err := Program("initdb")
	if err != nil {
		return nil, err
	}
	s, err := newSentry()
	if err != nil {
		return nil, err
	}
	c := &Cluster{sentry: s, programs: filepath.Dir(initdb), password: rand.Text()}
	err = c.init(opts)
	if err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.port.release(), s.close())
	}
	return c, nil
}

func (c *Cluster) init(opts *Options) (err error) {
	if c.port, err = takePort(); err != nil {
		return err
	}
	secret := filepath.Join(c.sentry.dir, "password")
	if err := errors.Join(os.WriteFile(secret, []byte(secretOf(c.password)), 0o600), giveAway(secret)); err != nil {
		return fmt.Errorf("write password: %w", err)
	}
	cmd := exec.Command(filepath.Join(c.programs, "initdb"), "-D", c.data(), "-U", superuser, "-A", "scram-sha-256",
		"--pwfile", secret, "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	cmd.Dir = c.sentry.dir
	if cmd.SysProcAttr, err = unprivileged(); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("make cluster: %w (servers do not run as root, and %s must be one that all may enter)", err, os.TempDir())
	} else if err != nil {
		return fmt.Errorf("make cluster: %w\n%s", err, tail(out))
	}
	return c.configure(opts.Settings)
}

const superuser = "postgres"

func (c *Cluster) configure(more map[string]string) error {
	settings := map[string]string{
		"port": c.port.String(), "listen_addresses": "127.0.0.1", "unix_socket_directories": c.sentry.dir,
		"max_connections": "300",
	}
	maps.Copy(settings, more)
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&lines, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	conf, err := os.OpenFile(filepath.Join(c.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("configure cluster: %w", err)
	}
	_, err = conf.WriteString(lines.String())
	return errors.Join(err, conf.Close())
}

// Start starts a stopped cluster, under the address that it had, and returns when it takes connections.
func (c *Cluster) Start(ctx context.Context) error {
	if c.server != nil {
		return errors.New("start cluster: it runs")
	}
	s, err := c.sentry.start(c.Log(), filepath.Join(c.programs, "postgres"), "-D", c.data())
	if err != nil {
		return err
	}
	c.server = s
	if err := s.answers(ctx, c.URL()); err != nil {
		return errors.Join(fmt.Errorf("start cluster: %w\n%s", err, c.lastWords()), c.Stop(Immediate))
	}
	return nil
}

// Stop stops the cluster and returns when all its processes have ended.
func (c *Cluster) Stop(mode Mode) error {
	if c.server == nil {
		return errors.New("stop cluster: it does not run")
	}
	s := c.server
	c.server = nil
	return s.stop(signals[mode])
}

// Close stops the cluster and removes it.
func (c *Cluster) Close() error {
	var err error
	if c.server != nil {
		err = c.Stop(Immediate)
	}
	return errors.Join(err, c.port.release(), c.sentry.close())
}

// URL names the cluster to a client, as its superuser. It says that there is no TLS: who asks for that first makes two
// connections each time.
func (c *Cluster) URL() string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, c.password),
		Host: c.port.address(), Path: "/postgres", RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Socket is the directory of the cluster's socket, a client's host where it does not take TCP.
func (c *Cluster) Socket() string { return c.sentry.dir }

// PID is the process id of the server, the parent of all its processes; 0 while it is stopped.
func (c *Cluster) PID() int {
	if c.server == nil {
		return 0
	}
	return c.server.cmd.Process.Pid
}

// Log is the file that the server logs to.
func (c *Cluster) Log() string { return filepath.Join(c.sentry.dir, "log") }

func (c *Cluster) data() string { return filepath.Join(c.sentry.dir, "data") }

func (c *Cluster) lastWords() []byte {
	log, err := os.ReadFile(c.Log())
	if err != nil {
		return nil
	}
	return tail(log)
}

// answers waits until a client can connect, for as long as the server lives and at most for a minute.
func (p *server) answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			return conn.Close(ctx)
		}
		if p.hasEnded(20 * time.Millisecond) {
			return errors.New("it ended")
		}
		if ctx.Err() != nil {
			return fmt.Errorf("it takes no connection: %w", err)
		}
	}
}
