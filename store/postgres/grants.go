package postgres

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Grant implements store.Driver. A grant is known by its id, however often it is written.
func (d *Driver) Grant(ctx context.Context, g *effect.Grant) error {
	id, ok := parseID(g.ID)
	if !ok {
		return fmt.Errorf("%q is no UUID", g.ID)
	}
	if err := d.meet(ctx, g.Tenant); err != nil {
		return fmt.Errorf("insert tenant %s: %w", g.Tenant, err)
	}
	name := toolHash(g.Server, g.Tool)
	return d.persist(ctx, func(ctx context.Context) error {
		return asTenant(ctx, d.pool, g.Tenant, statement{
			sql: `
				INSERT INTO undolog.standing_grant (
				  id, seq, created_at, expires_at, tenant, name_hash, kind, server, tool, principal, complete, condition,
				  definition, by, reason)
				VALUES (
				  $1, pg_current_xact_id()::text::bigint << 16, COALESCE($2::timestamptz, now()), $3::timestamptz, $4, $5, $6, $7, $8, $9,
				  $10, $11, $12, $13, $14)
				ON CONFLICT (id) DO NOTHING`,
			args: []any{
				id, timestamp(g.CreatedAt), timestamp(g.ExpiresAt), text(g.Tenant), name[:], string(g.Kind), text(g.Server), text(g.Tool),
				text(g.Principal), blob(g.Complete), text(g.Where), blob(g.Definition), text(g.By), text(g.Reason),
			},
		})
	})
}

// Revoke implements store.Driver. It waits for the claims under way that rest on grants for the same tool: none
// that is recorded after it rests on this one.
func (d *Driver) Revoke(ctx context.Context, tenant, id, by, reason string) (g *effect.Grant, revoked bool, err error) {
	key, ok := parseID(id)
	if !ok {
		return nil, false, store.ErrNotFound
	}
	r := &revoking{driver: d, tenant: tenant, id: key, by: by, reason: reason}
	err = d.persist(ctx, func(ctx context.Context) error { return r.try(ctx) })
	if err != nil {
		return nil, false, err
	}
	return r.grant, r.done, nil
}

// revoking is one revocation on its way.
type revoking struct {
	driver     *Driver
	tenant     string
	id         pgtype.UUID
	by, reason string

	grant *effect.Grant
	tried bool // and perhaps done
	done  bool
}

func (r *revoking) try(ctx context.Context) error {
	if err := r.read(ctx, r.driver.pool); err != nil {
		return err
	}
	if !r.grant.RevokedAt.IsZero() {
		r.done = r.tried && r.grant.RevokedBy == r.by
		return nil
	}
	r.tried = true
	return pgx.BeginTxFunc(ctx, r.driver.pool, inTurns, func(tx pgx.Tx) error {
		turns := turns{}
		turns.take(grantTurn(r.tenant, r.grant.Server, r.grant.Tool))
		if err := turns.lock(ctx, tx); err != nil {
			return err
		}
		if err := asTenant(ctx, tx, r.tenant, r.insert()); err != nil {
			return err
		}
		return r.read(ctx, tx)
	})
}

func (r *revoking) insert() statement {
	r.done = false
	return statement{
		sql: `
			INSERT INTO undolog.revocation (standing_grant, at, tenant, by, reason)
			VALUES ($1, COALESCE($2::timestamptz, clock_timestamp()), $3, $4, $5)
			ON CONFLICT (standing_grant) DO NOTHING
			RETURNING true`,
		args: []any{r.id, r.driver.clock.param(), text(r.tenant), text(r.by), text(r.reason)},
		read: readWhether(&r.done),
	}
}

func (r *revoking) read(ctx context.Context, s sender) error {
	var grants []*effect.Grant
	err := asTenant(ctx, s, r.tenant, statement{sql: selectGrant + ` WHERE g.id = $1`, args: []any{r.id}, read: readGrants(&grants)})
	if err == nil && len(grants) == 0 {
		return store.ErrNotFound
	}
	if err == nil {
		r.grant = grants[0]
	}
	return err
}

const selectGrant = `
	SELECT g.id, g.tenant, g.kind, g.server, g.tool, g.principal, g.complete, g.condition, g.definition, g.by, g.reason,
	       g.created_at, g.expires_at, r.at, r.by
	FROM undolog.standing_grant g
	LEFT JOIN undolog.revocation r ON r.standing_grant = g.id`

// activeGrant is effect.Grant.IsActive in SQL: keep them equal. The time is a parameter of this number.
func activeGrant(now int) string {
	return fmt.Sprintf(`r.at IS NULL AND (g.expires_at IS NULL OR g.expires_at > COALESCE($%d::timestamptz, now()))`, now)
}

// Grants implements store.Driver.
func (d *Driver) Grants(ctx context.Context, f *store.GrantFilter) (grants []*effect.Grant, err error) {
	args := []any{text(f.Tenant), int64(cmp.Or(max(f.Limit, 0), 100))}
	where := []string{`g.tenant = $1`}
	add := func(condition string, value any) {
		args = append(args, value)
		where = append(where, fmt.Sprintf(condition, len(args)))
	}
	if f.Server != "" {
		add(`g.server = $%d`, text(f.Server))
	}
	if f.Tool != "" {
		add(`g.tool = $%d`, text(f.Tool))
	}
	if f.Active {
		args = append(args, d.clock.param())
		where = append(where, activeGrant(len(args)))
	}
	err = d.retry(ctx, func(ctx context.Context) error {
		return asTenant(ctx, d.pool, f.Tenant, statement{
			sql: selectGrant + `
				WHERE ` + strings.Join(where, ` AND `) + `
				ORDER BY g.seq DESC
				LIMIT $2`,
			args: args, read: readGrants(&grants),
		})
	})
	return grants, err
}

// askGrants asks for the grants that may cover the call; whether one does is effect.Decide's to say.
func (b *begin) askGrants(f *facts) statement {
	c := b.p.Call
	name := toolHash(c.Server, c.Tool)
	return statement{
		sql: selectGrant + `
			WHERE g.tenant = $1 AND g.name_hash = $2 AND ` + activeGrant(3) + `
			  AND (g.principal = '' OR g.principal = $4)
			  AND (g.kind <> 'exact' OR g.complete = $5)
			ORDER BY g.seq`,
		args: []any{text(b.p.Tenant()), name[:], b.driver.clock.param(), text(c.Principal), b.p.Identity.Complete[:]},
		read: readGrants(&f.Grants),
	}
}

func readGrants(into *[]*effect.Grant) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*into = nil
		for rows.Next() {
			var g effect.Grant
			var id pgtype.UUID
			var complete, definition []byte
			var created time.Time
			var expires, revoked pgtype.Timestamptz
			var revokedBy pgtype.Text
			err := rows.Scan(&id, &g.Tenant, (*string)(&g.Kind), &g.Server, &g.Tool, &g.Principal, &complete, &g.Where, &definition,
				&g.By, &g.Reason, &created, &expires, &revoked, &revokedBy)
			if err != nil {
				return fmt.Errorf("scan grant: %w", err)
			}
			g.ID, g.CreatedAt, g.ExpiresAt = id.String(), created.UTC(), fromTimestamp(expires)
			g.RevokedAt, g.RevokedBy = fromTimestamp(revoked), revokedBy.String
			copy(g.Complete[:], complete)
			copy(g.Definition[:], definition)
			for _, s := range []*string{&g.Tenant, &g.Server, &g.Tool, &g.Principal, &g.Where, &g.By, &g.Reason, &g.RevokedBy} {
				*s = untext(*s)
			}
			*into = append(*into, &g)
		}
		return nil
	}
}
