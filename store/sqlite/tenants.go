package sqlite

import (
	"context"
	"errors"
)

// Tenants implements store.Driver. It goes from tenant to tenant in an index that begins with them.
func (d *Driver) Tenants(ctx context.Context) (tenants []string, err error) {
	rows, err := snapshot{ctx, d.readers}.query(`
		WITH RECURSIVE next (tenant) AS (
		  SELECT MIN(tenant) FROM effect
		  UNION ALL
		  SELECT (SELECT MIN(tenant) FROM effect WHERE tenant > next.tenant) FROM next WHERE next.tenant IS NOT NULL)
		SELECT tenant FROM next WHERE tenant IS NOT NULL`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var tenant string
		if err := rows.Scan(&tenant); err != nil {
			return nil, err
		}
		tenants = append(tenants, tenant)
	}
	return tenants, rows.Err()
}
