package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
)

// Bouncer is a PgBouncer in transaction mode before one database.
type Bouncer struct {
	URL string // of the database through it, as its owner

	sentry *sentry
	port   *port
	server *server
}

// BouncerOptions are what may be set about a Bouncer; nil stands for all defaults.
type BouncerOptions struct {
	// PoolSize is how many connections to the server it shares among its clients. Defaults to 20.
	PoolSize int
}

// NewBouncer starts a PgBouncer before the database.
func NewBouncer(ctx context.Context, db *Database, opts *BouncerOptions) (*Bouncer, error) {
	program, err := bouncerProgram()
	if err != nil {
		return nil, err
	}
	s, err := newSentry()
	if err != nil {
		return nil, err
	}
	b := &Bouncer{sentry: s}
	if err := b.start(ctx, program, db, opts); err != nil {
		return nil, errors.Join(err, b.port.release(), s.close())
	}
	return b, nil
}

func (b *Bouncer) start(ctx context.Context, program string, db *Database, opts *BouncerOptions) error {
	u, err := url.Parse(db.URL)
	if err != nil {
		return fmt.Errorf("parse address of database: %w", err)
	}
	if b.port, err = takePort(); err != nil {
		return err
	}
	if err := b.configure(u, db, opts); err != nil {
		return fmt.Errorf("configure pgbouncer: %w", err)
	}
	log := filepath.Join(b.sentry.dir, "log")
	if b.server, err = b.sentry.start(log, program, filepath.Join(b.sentry.dir, "pgbouncer.ini")); err != nil {
		return err
	}
	u.Host = b.port.address()
	b.URL = u.String()
	// The exec mode is that of a client which prepares nothing.
	query := u.Query()
	query.Set("default_query_exec_mode", "exec")
	u.RawQuery = query.Encode()
	if err := b.server.answers(ctx, u.String()); err != nil {
		words, readErr := os.ReadFile(log)
		return errors.Join(fmt.Errorf("start pgbouncer: %w\n%s", err, tail(words)), readErr, b.server.stop(syscall.SIGTERM))
	}
	return nil
}

func (b *Bouncer) configure(server *url.URL, db *Database, opts *BouncerOptions) error {
	size := 20
	if opts != nil && opts.PoolSize > 0 {
		size = opts.PoolSize
	}
	users := filepath.Join(b.sentry.dir, "users")
	conf := filepath.Join(b.sentry.dir, "pgbouncer.ini")
	return errors.Join(
		os.WriteFile(users, fmt.Appendf(nil, "%q %q\n", db.Name, db.Password), 0o600), giveAway(users),
		os.WriteFile(conf, fmt.Appendf(nil, bouncerConf, db.Name, server.Hostname(), serverPort(server), db.Name, b.port.number, users, size), 0o600),
		giveAway(conf))
}

func serverPort(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return "5432"
}

// bouncerConf has clients log in by md5: by SCRAM they would repeat 4096 hashes with each connection, which the server's
// secrets spare them.
const bouncerConf = `[databases]
%s = host=%s port=%s dbname=%s
[pgbouncer]
pool_mode = transaction
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = md5
auth_file = %s
default_pool_size = %d
max_client_conn = 500
server_login_retry = 0.2
ignore_startup_parameters = extra_float_digits
`

// PID is the process id of PgBouncer.
func (b *Bouncer) PID() int { return b.server.cmd.Process.Pid }

// Close stops PgBouncer.
func (b *Bouncer) Close() error {
	return errors.Join(b.server.stop(syscall.SIGTERM), b.port.release(), b.sentry.close())
}
