package postgres

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// cells reads the columns of one row one after another, from the bytes that the server sent in its binary format.
// It is for the rows that are read most often: to scan one takes pgx a plan for each column. What is NULL reads as
// zero.
type cells struct {
	left [][]byte
	err  error
}

// take returns the bytes of the next column, which are to be so many, nil for NULL.
func (c *cells) take(size int) []byte {
	if len(c.left) == 0 {
		c.err = errors.New("it has too few columns")
		return nil
	}
	cell := c.left[0]
	c.left = c.left[1:]
	if cell != nil && size >= 0 && len(cell) != size {
		c.err = fmt.Errorf("a column of %d bytes where %d were expected", len(cell), size)
		return nil
	}
	return cell
}

const anySize = -1

// row returns the columns of a column that is a row; nil for NULL.
func (c *cells) row() *cells {
	cell := c.take(anySize)
	if cell == nil {
		return nil
	}
	inner := &cells{}
	if len(cell) < 4 {
		c.err = errCutOff
		return inner
	}
	columns := int(binary.BigEndian.Uint32(cell))
	cell = cell[4:]
	inner.left = make([][]byte, 0, min(columns, len(cell)/8))
	for len(cell) >= 8 { // of each the type, the length and the bytes
		size := int(int32(binary.BigEndian.Uint32(cell[4:])))
		cell = cell[8:]
		if size < 0 {
			inner.left = append(inner.left, nil)
			continue
		}
		if size > len(cell) {
			break
		}
		inner.left = append(inner.left, cell[:size:size])
		cell = cell[size:]
	}
	if len(cell) > 0 || len(inner.left) != columns {
		c.err = errCutOff
	}
	return inner
}

var errCutOff = errors.New("a row within the row is cut off")

func (c *cells) text() string { return untext(string(c.take(anySize))) }

func (c *cells) bytes() []byte { return bytes.Clone(c.take(anySize)) }

func (c *cells) digest() (d [32]byte) {
	copy(d[:], c.take(len(d)))
	return d
}

func (c *cells) id() string {
	cell := c.take(16)
	if cell == nil {
		return ""
	}
	return pgtype.UUID{Bytes: [16]byte(cell), Valid: true}.String()
}

func (c *cells) long() int64 {
	if cell := c.take(8); cell != nil {
		return int64(binary.BigEndian.Uint64(cell))
	}
	return 0
}

func (c *cells) number() int {
	if cell := c.take(4); cell != nil {
		return int(int32(binary.BigEndian.Uint32(cell)))
	}
	return 0
}

func (c *cells) is() bool {
	cell := c.take(1)
	return cell != nil && cell[0] != 0
}

// year2000 is the server's epoch.
var year2000 = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// time returns a timestamptz; zero for NULL.
func (c *cells) time() time.Time {
	if cell := c.take(8); cell != nil {
		return time.UnixMicro(year2000 + int64(binary.BigEndian.Uint64(cell))).UTC()
	}
	return time.Time{}
}
