package postgres

import (
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"
)

// appendBinary writes a value in the server's binary format; NULL takes no bytes.
func appendBinary(buf []byte, value any) (filled []byte, isNull bool, err error) {
	switch v := value.(type) {
	case []byte:
		return append(buf, v...), v == nil, nil
	case string:
		return append(buf, v...), false, nil
	case bool:
		if v {
			return append(buf, 1), false, nil
		}
		return append(buf, 0), false, nil
	case int32:
		return binary.BigEndian.AppendUint32(buf, uint32(v)), false, nil
	case int64:
		return binary.BigEndian.AppendUint64(buf, uint64(v)), false, nil
	case pgtype.Int8:
		return appendLong(buf, v.Int64, v.Valid)
	case pgtype.Timestamptz:
		return appendLong(buf, v.Time.UnixMicro()-year2000, v.Valid)
	case pgtype.UUID:
		if !v.Valid {
			return buf, true, nil
		}
		return append(buf, v.Bytes[:]...), false, nil
	}
	return buf, false, fmt.Errorf("a %T has no binary form here", value)
}

func appendLong(buf []byte, n int64, valid bool) (filled []byte, isNull bool, err error) {
	if !valid {
		return buf, true, nil
	}
	return binary.BigEndian.AppendUint64(buf, uint64(n)), false, nil
}
