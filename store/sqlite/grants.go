package sqlite

import (
	"context"
	"errors"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

var errTODO = errors.New("TODO: being written")

// Equals implements store.Driver.
func (d *Driver) Equals(ctx context.Context, tenant string, window effect.Signature, limit int) ([]*effect.Record, error) {
	return nil, errTODO
}

// Grant implements store.Driver.
func (d *Driver) Grant(ctx context.Context, g *effect.Grant) error { return errTODO }

// Revoke implements store.Driver.
func (d *Driver) Revoke(ctx context.Context, tenant, id, by, reason string) (*effect.Grant, bool, error) {
	return nil, false, errTODO
}

// Grants implements store.Driver.
func (d *Driver) Grants(ctx context.Context, f *store.GrantFilter) ([]*effect.Grant, error) {
	return nil, errTODO
}
