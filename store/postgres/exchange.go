package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var allBinary = []int16{pgx.BinaryFormatCode}

// exchange runs statements as one transaction, in one round trip, with all values in the server's binary format and
// rows as they are; prepared, where that can be. They are of one caller when forOne is set.
func (d *Driver) exchange(ctx context.Context, forOne bool, statements ...statement) (err error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	readEagerly(conn.Conn(), forOne)
	var b pgconn.Batch
	for _, st := range statements {
		if err := d.add(ctx, conn.Conn(), &b, st); err != nil {
			return err
		}
	}
	results := conn.Conn().PgConn().ExecBatch(ctx, &b)
	defer func() { err = cmp.Or(results.Close(), err) }()
	for _, st := range statements {
		if !results.NextResult() {
			return errUnanswered // unless Close says why
		}
		reader := results.ResultReader()
		if st.read != nil {
			err = st.read(pgx.RowsFromResultReader(conn.Conn().TypeMap(), reader))
		}
		if _, closed := reader.Close(); closed != nil {
			return closed
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errUnanswered says that a transaction ended before all of its statements were answered.
var errUnanswered = errors.New("the server has not answered every statement")

func (d *Driver) add(ctx context.Context, conn *pgx.Conn, b *pgconn.Batch, st statement) error {
	if !d.mode.isPrepared() {
		params, types, err := paramsOf(conn, st.args, nil)
		b.ExecParams(st.sql, params, types, allBinary, allBinary)
		return err
	}
	prepared, err := conn.Prepare(ctx, st.sql, st.sql)
	if err != nil {
		return err
	}
	params, _, err := paramsOf(conn, st.args, prepared.ParamOIDs)
	b.ExecPrepared(prepared.Name, params, allBinary, allBinary)
	return err
}

// paramsOf are the values of a statement and their types, which are these where they are known.
func paramsOf(conn *pgx.Conn, args []any, known []uint32) (params [][]byte, types []uint32, err error) {
	params, types = make([][]byte, len(args)), make([]uint32, len(args))
	copy(types, known)
	for i, arg := range args {
		if r, ok := arg.(*rows); ok {
			if r.err != nil {
				return nil, nil, r.err
			}
			params[i] = r.param()
			continue
		}
		if t, ok := conn.TypeMap().TypeForValue(arg); ok && known == nil {
			types[i] = t.OID
		}
		params[i], err = conn.TypeMap().Encode(types[i], pgx.BinaryFormatCode, arg, []byte{}) // nil is NULL
		if err != nil {
			return nil, nil, fmt.Errorf("encode parameter %d: %w", i+1, err)
		}
	}
	return params, types, nil
}

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
	readEagerly(conn.Conn(), true)
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
