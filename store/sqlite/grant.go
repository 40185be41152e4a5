package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Grant implements store.Driver.
func (d *Driver) Grant(ctx context.Context, g *effect.Grant) error {
	return d.writer.do(ctx, func(t *tx) error {
		_, err := t.exec(`
			INSERT INTO standing_grant (id, tenant, kind, server, tool, principal, complete, condition, definition,
			       by, reason, created_at, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			g.ID, g.Tenant, string(g.Kind), g.Server, g.Tool, g.Principal, blob(g.Complete), g.Where, blob(g.Definition),
			g.By, g.Reason, micros(g.CreatedAt), nullMicros(g.ExpiresAt))
		if err != nil {
			return fmt.Errorf("insert grant %s: %w", g.ID, err)
		}
		return nil
	})
}

// Revoke implements store.Driver.
func (d *Driver) Revoke(ctx context.Context, tenant, id, by, reason string) (g *effect.Grant, revoked bool, err error) {
	err = d.writer.do(ctx, func(t *tx) (err error) {
		g, revoked, err = t.revoke(tenant, id, by, reason)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return g, revoked, nil
}

func (t *tx) revoke(tenant, id, by, reason string) (*effect.Grant, bool, error) {
	result, err := t.exec(`
		INSERT INTO revocation (standing_grant, at, by, reason)
		SELECT seq, ?, ?, ?
		FROM standing_grant
		WHERE tenant = ? AND id = ?
		ON CONFLICT (standing_grant) DO NOTHING`, micros(t.now), by, reason, tenant, id)
	if err != nil {
		return nil, false, fmt.Errorf("insert revocation: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return nil, false, err
	}
	found, err := grants(t, selectGrant+`
		WHERE g.tenant = ? AND g.id = ?`, tenant, id)
	if err != nil {
		return nil, false, err
	}
	if len(found) == 0 {
		return nil, false, store.ErrNotFound
	}
	return found[0], n == 1, nil
}

// Grants implements store.Driver.
func (d *Driver) Grants(ctx context.Context, f *store.GrantFilter) ([]*effect.Grant, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	args := []any{f.Tenant, limit, micros(d.now())}
	where := []string{`g.tenant = ?1`, `?3 = ?3`}
	add := func(column, value string) {
		if value != "" {
			args = append(args, value)
			where = append(where, fmt.Sprintf("%s = ?%d", column, len(args)))
		}
	}
	add("g.server", f.Server)
	add("g.tool", f.Tool)
	if f.Active {
		where = append(where, `v.at IS NULL`, `COALESCE(g.expires_at > ?3, TRUE)`)
	}
	return grants(snapshot{ctx, d.readers}, selectGrant+`
		WHERE `+strings.Join(where, " AND ")+`
		ORDER BY g.seq DESC
		LIMIT ?2`, args...)
}

// grants gathers what may stand for the call's approval: effect.Decide says whether it does.
func (t *tx) grants(p *store.Begin, f *effect.Facts) (err error) {
	if !p.Contract.AsksGrants() {
		return nil
	}
	f.Grants, err = grants(t, selectGrant+`
		WHERE g.tenant = ? AND g.server = ? AND g.tool = ? AND v.at IS NULL AND COALESCE(g.expires_at > ?, TRUE)
		  AND COALESCE(g.complete = ?, TRUE)
		ORDER BY g.seq DESC`,
		p.Tenant(), p.Call.Server, p.Call.Tool, micros(t.now), p.Identity.Complete[:])
	return err
}

const selectGrant = `
	SELECT g.id, g.tenant, g.kind, g.server, g.tool, g.principal, g.complete, g.condition, g.definition,
	       g.by, g.reason, g.created_at, g.expires_at, v.at, COALESCE(v.by, '')
	FROM standing_grant g
	LEFT JOIN revocation v ON v.standing_grant = g.seq`

func grants(q queryer, query string, args ...any) (found []*effect.Grant, err error) {
	rows, err := q.query(query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		g, err := scanGrant(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, g)
	}
	return found, rows.Err()
}

func scanGrant(rows *sql.Rows) (*effect.Grant, error) {
	var g effect.Grant
	var complete, definition []byte
	var created int64
	var expires, revoked sql.NullInt64
	err := rows.Scan(&g.ID, &g.Tenant, (*string)(&g.Kind), &g.Server, &g.Tool, &g.Principal, &complete, &g.Where, &definition,
		&g.By, &g.Reason, &created, &expires, &revoked, &g.RevokedBy)
	if err != nil {
		return nil, fmt.Errorf("scan grant: %w", err)
	}
	copy(g.Complete[:], complete)
	copy(g.Definition[:], definition)
	g.CreatedAt = fromMicros(created)
	g.ExpiresAt, g.RevokedAt = fromNullMicros(expires), fromNullMicros(revoked)
	return &g, nil
}
