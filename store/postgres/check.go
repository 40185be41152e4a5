package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// errUnbound says that row-level security would not keep the tenants apart.
var errUnbound = errors.New("row-level security does not bind the role")

// checkServer refuses settings under which the log would not be what it promises, and a role that sees all
// tenants.
func (d *Driver) checkServer(ctx context.Context) error {
	var (
		role, database, isolation, commit, fsync string
		superuser, bypasses, reads, rowSecurity  bool
	)
	err := d.retry(ctx, func(ctx context.Context) error {
		return d.pool.QueryRow(ctx, `
			SELECT quote_ident(current_user), quote_ident(current_database()), r.rolsuper, r.rolbypassrls,
			       current_setting('default_transaction_isolation'), current_setting('synchronous_commit'), current_setting('fsync'),
			       current_setting('default_transaction_read_only')::boolean AND NOT pg_is_in_recovery(),
			       current_setting('row_security')::boolean
			FROM pg_roles r
			WHERE r.rolname = current_user`).
			Scan(&role, &database, &superuser, &bypasses, &isolation, &commit, &fsync, &reads, &rowSecurity)
	})
	switch {
	case err != nil:
		return err
	case superuser:
		return fmt.Errorf("%w: %s is a superuser; make one that is none and use it: CREATE ROLE undolog LOGIN PASSWORD '…'; ALTER DATABASE %s OWNER TO undolog; to a schema that is there already it needs the GRANTs of docs/postgres.md", errUnbound, role, database)
	case bypasses:
		return fmt.Errorf("%w: %s may bypass it; as a superuser run: ALTER ROLE %s NOBYPASSRLS", errUnbound, role, role)
	case !rowSecurity:
		return fmt.Errorf("row_security is off, so that the server refuses what row-level security would filter; run: ALTER ROLE %s SET row_security = on", role)
	case reads:
		return fmt.Errorf("default_transaction_read_only is on: the log is written to; run: ALTER ROLE %s SET default_transaction_read_only = off", role)
	case isolation != "read committed":
		return fmt.Errorf("default_transaction_isolation is %q, and the log needs 'read committed'; run: ALTER ROLE %s SET default_transaction_isolation = 'read committed'", isolation, role)
	case commit == "off":
		return fmt.Errorf("synchronous_commit is off, so that a claim could be lost after it was made; run: ALTER ROLE %s SET synchronous_commit = on", role)
	}
	if fsync == "off" {
		d.logger.Warn("fsync is off: a crash of the server can lose the log", slog.String("database", database))
	}
	return nil
}

// checkRights refuses a role that would find out with its first call what it may not do. What only pruning needs
// is not asked for.
func (d *Driver) checkRights(ctx context.Context) error {
	var missing []string
	err := d.retry(ctx, func(ctx context.Context) error {
		rows, err := d.pool.Query(ctx, `
			SELECT r.name || ' ON undolog.' || t.name
			FROM (VALUES
			  ('tenant', '{SELECT,INSERT}'::text[]), ('effect', '{SELECT,INSERT}'), ('transition', '{SELECT,INSERT}'),
			  ('event', '{SELECT,INSERT}'), ('tool', '{SELECT,INSERT}'), ('approval', '{SELECT,INSERT}'),
			  ('standing_grant', '{SELECT,INSERT}'), ('revocation', '{SELECT,INSERT}'),
			  ('delivery', '{SELECT,INSERT,UPDATE,DELETE}'), ('spend', '{SELECT,INSERT,UPDATE}'),
			  ('open_move', '{SELECT,INSERT,DELETE}'), ('mark', '{SELECT,INSERT,UPDATE}'),
			  ('owner', '{SELECT,INSERT,UPDATE,DELETE}')) AS t(name, rights)
			CROSS JOIN LATERAL unnest(t.rights) AS r(name)
			WHERE NOT CASE WHEN r.name = 'DELETE' THEN has_table_privilege('undolog.' || t.name, r.name)
			          ELSE has_any_column_privilege('undolog.' || t.name, r.name) END
			UNION ALL
			SELECT 'EXECUTE ON FUNCTION undolog.' || p.proname
			FROM pg_proc p
			WHERE p.pronamespace = 'undolog'::regnamespace AND p.proname IN ('insert_effects', 'insert_moves', 'note_open')
			  AND NOT has_function_privilege(p.oid, 'EXECUTE')
			ORDER BY 1`)
		if err != nil {
			return err
		}
		missing, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	return fmt.Errorf("%w: it lacks %s", errRights, strings.Join(missing, ", "))
}

// checkPolicies refuses tables whose policies do not hold for everybody.
func (d *Driver) checkPolicies(ctx context.Context) error {
	var tables []string
	err := d.retry(ctx, func(ctx context.Context) error {
		rows, err := d.pool.Query(ctx, `
			SELECT c.relname
			FROM pg_class c
			WHERE c.relnamespace = 'undolog'::regnamespace
			  AND c.relname IN ('effect', 'transition', 'delivery', 'event', 'tool', 'approval', 'standing_grant', 'revocation', 'spend', 'open_move', 'mark')
			  AND NOT (c.relrowsecurity AND c.relforcerowsecurity
			           AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid))
			ORDER BY c.relname`)
		if err != nil {
			return err
		}
		tables, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil || len(tables) == 0 {
		return err
	}
	var fixes []string
	for _, table := range tables {
		fixes = append(fixes, fmt.Sprintf("ALTER TABLE undolog.%s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;", table))
	}
	return fmt.Errorf("%w: as the owner of the tables run: %s", errUnbound, strings.Join(fixes, " "))
}

// readClock anchors the database's clock on the quickest of a few answers.
func (d *Driver) readClock(ctx context.Context) error {
	var best anchor
	quickest := time.Duration(-1)
	for range 5 {
		var sent, database time.Time
		err := d.retry(ctx, func(ctx context.Context) error {
			sent = time.Now()
			return d.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&database)
		})
		if err != nil {
			return err
		}
		if took := time.Since(sent); quickest < 0 || took < quickest {
			quickest, best = took, anchor{local: sent.Add(took / 2), database: database.UTC()}
		}
	}
	d.clock.anchor.Store(&best)
	return nil
}
