package postgres

import (
	"context"
	"log/slog"
	"maps"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// maxConns is the size of the pool when the URL says nothing: grouped writes use two at a time, reads the
// rest.
const maxConns = 16

// dateStyle is the one that times can be read in where they come as text, whatever the role has.
const dateStyle = "ISO"

// mode is how statements are sent. Prepared ones cost the server least, and cannot be used through a
// pooler that shares connections by transaction; unprepared ones still take one round trip. Such a pooler takes no
// settings for a connection either: transactions then say them.
type mode struct {
	chosen     bool // by the URL
	prepares   bool // as long as nothing speaks against it
	unprepared atomic.Bool
	untuned    atomic.Bool
}

// tuning is how statements are planned, once, and with indexes, row by row, and how long they wait for others; see
// queueTenant. What they call is the server's own: a function of somebody else's that fits a type better would be
// taken before it.
var tuning = map[string]string{
	"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off", "lock_timeout": "2s",
	"search_path": "pg_catalog",
}

// isTuned reports whether connections are planned for as tuning says without being told again.
func (m *mode) isTuned() bool { return !m.untuned.Load() }

// isOwn reports whether a connection is this program's alone, so that what was prepared and tuned on it stays.
func (m *mode) isOwn() bool { return m.isTuned() && m.isPrepared() }

// isPrepared reports whether what was prepared on a connection has been there so far when it was run.
func (m *mode) isPrepared() bool { return m.prepares && !m.unprepared.Load() }

// config reads the URL and has each new connection use the mode of that moment.
func (d *Driver) config(address string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	d.mode.chosen = names(address, "default_query_exec_mode")
	d.mode.prepares = config.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
	if !names(address, "pool_max_conns") {
		config.MaxConns = maxConns
	}
	if _, named := config.ConnConfig.RuntimeParams["application_name"]; !named {
		config.ConnConfig.RuntimeParams["application_name"] = "undolog"
	}
	config.ConnConfig.RuntimeParams["datestyle"] = dateStyle
	config.ConnConfig.DialFunc = linked(config.ConnConfig.DialFunc)
	config.ConnConfig.OnPgError = leaveStandby(config.ConnConfig.OnPgError)
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if d.mode.unprepared.Load() {
			c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
		if d.mode.isTuned() {
			maps.Copy(c.RuntimeParams, tuning)
		}
		return nil
	}
	config.AfterConnect = d.checkTuning
	return config, nil
}

// checkTuning finds out whether a pooler has kept the tuning to itself.
func (d *Driver) checkTuning(ctx context.Context, conn *pgx.Conn) error {
	if !d.mode.isTuned() {
		return nil
	}
	for name, value := range tuning {
		var is string
		if err := conn.QueryRow(ctx, `SELECT current_setting($1)`, pgx.QueryExecModeExec, name).Scan(&is); err != nil {
			return err
		}
		if is != value {
			d.mode.untuned.Store(true)
		}
	}
	return nil
}

// leaveStandby closes a connection that only reads: it leads to a server that was the primary, and would stay
// in the pool for as long as that server lives.
func leaveStandby(next pgconn.PgErrorHandler) pgconn.PgErrorHandler {
	return func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != readOnlyTransaction && next(conn, err)
	}
}

// names reports whether an address, a URL or libpq's key=value words, sets a parameter.
func names(address, parameter string) bool {
	if u, err := url.Parse(address); err == nil && u.Scheme != "" {
		return u.Query().Has(parameter)
	}
	return strings.Contains(address, parameter+"=")
}

// learnMode stops preparing statements when an error shows that what is prepared on a connection is not
// there when it is run, and tuning connections when one is refused for it.
func (d *Driver) learnMode(err error) {
	if code(err) == protocolViolation {
		d.mode.untuned.Store(true)
	}
	if d.mode.chosen || !isPreparedElsewhere(err) || d.mode.unprepared.Swap(true) {
		return
	}
	d.logger.Info("connections are shared by a pooler: statements are no longer prepared", slog.Any("error", err))
	d.pool.Reset()
}
