package postgres

import (
	"context"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/undolog/undolog/effect"
)

// ReadSettled reads a row of settledColumns as the server sends it, and its place, for the only call that asks; nil
// when there is more to know.
func ReadSettled(row [][]byte) (r *effect.Record, large bool, err error) {
	q := &read{more: true}
	err = readSettled(row, []*read{q})
	return q.latest.Record, q.large, err
}

// Inserts are the statements that functions of the schema say too, by the functions' names.
var Inserts = map[string]string{"insert_effects": insertEffects, "insert_moves": insertMoves}

// Eagerness is how long a link waits in the kernel.
const Eagerness = eagerness

// Linked makes links of what dial connects.
func Linked(dial pgconn.DialFunc) pgconn.DialFunc { return linked(dial) }

// ReadEagerly has a connection read eagerly, if there is a link in it.
func ReadEagerly(conn net.Conn) bool {
	l := linkOf(conn)
	if l != nil {
		l.eager.Store(true)
	}
	return l != nil
}

// IsEager reports whether a connection of the pool was last read eagerly.
func (d *Driver) IsEager(ctx context.Context) bool {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return false
	}
	defer conn.Release()
	l := linkOf(conn.Conn().PgConn().Conn())
	return l != nil && l.eager.Load()
}
