package postgres

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"
)

// askPrepared runs a statement as a transaction of its own, on a connection that keeps what is prepared: without what
// a batch costs, and without pgx's plans for each parameter and column. Each row is read by read.
func (d *Driver) askPrepared(ctx context.Context, sql string, args []any, read func(row [][]byte) error) error {
	params, err := binaryOf(args)
	if err != nil {
		return err
	}
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	prepared, err := conn.Conn().Prepare(ctx, sql, sql)
	if err != nil {
		return err
	}
	rows := conn.Conn().PgConn().ExecStatement(ctx, prepared, params, allBinary, allBinary)
	for err == nil && rows.NextRow() {
		err = read(rows.Values())
	}
	if _, failed := rows.Close(); failed != nil {
		return failed
	}
	return err
}

// binaryOf writes the parameters of one row in the server's binary format; nil is NULL.
func binaryOf(args []any) ([][]byte, error) {
	params := make([][]byte, len(args))
	buf := make([]byte, 0, 512)
	for i, arg := range args {
		from := len(buf)
		switch v := arg.(type) {
		case []byte:
			params[i] = v
			continue
		case string:
			buf = append(buf, v...)
		case bool:
			buf = append(buf, 0)
			if v {
				buf[from] = 1
			}
		case int32:
			buf = binary.BigEndian.AppendUint32(buf, uint32(v))
		case int64:
			buf = binary.BigEndian.AppendUint64(buf, uint64(v))
		case pgtype.Int8:
			if !v.Valid {
				continue
			}
			buf = binary.BigEndian.AppendUint64(buf, uint64(v.Int64))
		case pgtype.UUID:
			if !v.Valid {
				continue
			}
			buf = append(buf, v.Bytes[:]...)
		case pgtype.Timestamptz:
			if !v.Valid {
				continue
			}
			buf = binary.BigEndian.AppendUint64(buf, uint64(v.Time.UnixMicro()-year2000))
		default:
			return nil, fmt.Errorf("a %T has no binary form here", arg)
		}
		params[i] = buf[from:len(buf):len(buf)]
	}
	return params, nil
}
