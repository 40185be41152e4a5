package postgres

import (
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"
)

// attribute is a name and a type of a row that is sent.
type attribute struct{ name, of string }

// rowType is the types of the attributes of a row.
type rowType []uint32

var newEffect, newMove = typesOf(effectValues), typesOf(moveValues)

func typesOf(attributes []attribute) rowType {
	numbers := map[string]uint32{
		"uuid": pgtype.UUIDOID, "bigint": pgtype.Int8OID, "integer": pgtype.Int4OID, "boolean": pgtype.BoolOID,
		"timestamptz": pgtype.TimestamptzOID, "bytea": pgtype.ByteaOID, "text": pgtype.TextOID,
	}
	types := make(rowType, len(attributes))
	for i, a := range attributes {
		types[i] = numbers[a.of]
	}
	return types
}

// rows are an array of rows on their way, in the server's binary format.
type rows struct {
	of  rowType
	n   int
	buf []byte
	err error // of the first value that has no such form
}

// arrayHeader is of one dimension: how many there are, whether some are NULL, of which type, how many, and from which
// number on they count.
const arrayHeader = 20

func newRows(of rowType) *rows { return &rows{of: of, buf: make([]byte, arrayHeader)} }

// add puts a row in, of a value for each attribute.
func (r *rows) add(values []any) {
	r.n++
	at := len(r.buf)
	r.buf = binary.BigEndian.AppendUint32(r.buf, 0) // length, known afterwards
	r.buf = binary.BigEndian.AppendUint32(r.buf, uint32(len(values)))
	for i, v := range values {
		r.buf = binary.BigEndian.AppendUint32(r.buf, r.of[i])
		r.addValue(v)
	}
	binary.BigEndian.PutUint32(r.buf[at:], uint32(len(r.buf)-at-4))
}

func (r *rows) addValue(v any) {
	const null = ^uint32(0)
	at := len(r.buf)
	buf, isNull, err := appendBinary(binary.BigEndian.AppendUint32(r.buf, null), v)
	if err != nil && r.err == nil {
		r.err = err
	}
	if !isNull {
		binary.BigEndian.PutUint32(buf[at:], uint32(len(buf)-at-4))
	}
	r.buf = buf
}

// param is the parameter. The type of its rows is the one that the statement names: from PostgreSQL 15 on the server
// does not ask for the number of a type that is not its own (array_recv), which is another in each database.
func (r *rows) param() []byte {
	for i, v := range []uint32{1, 1, 0, uint32(r.n), 1} {
		binary.BigEndian.PutUint32(r.buf[4*i:], v)
	}
	return r.buf
}

// binaryOf writes parameters in the server's binary format; nil is NULL.
func binaryOf(args []any) ([][]byte, error) {
	params := make([][]byte, len(args))
	buf := make([]byte, 0, 512)
	for i, arg := range args {
		if v, isBytes := arg.([]byte); isBytes {
			params[i] = v
			continue
		}
		from := len(buf)
		filled, isNull, err := appendBinary(buf, arg)
		if err != nil {
			return nil, err
		}
		if buf = filled; !isNull {
			params[i] = slices.Clip(buf[from:])
		}
	}
	return params, nil
}
