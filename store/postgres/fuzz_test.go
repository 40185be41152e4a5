package postgres_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store/postgres"
)

// lastMoveColumn is the place of the last move, a row of its own, among the columns of a settled effect.
const lastMoveColumn = 26

// settledRow is a call that was answered, as the server sends it.
func settledRow() [][]byte {
	long, number, id, digest, text := make([]byte, 8), make([]byte, 4), make([]byte, 16), bytes.Repeat([]byte{7}, 32), []byte("x")
	one := []byte{0, 0, 0, 1}
	return [][]byte{
		long, []byte("claimed"), long, id, text, text, text, text, text, text, []byte("irreversible"), []byte("key"), text,
		digest, nil, one, text, text, text, digest, digest, text, text, text, long, []byte(`{"a":1}`),
		rowOf(one, one, []byte("committed"), long, text, text, text, text, []byte("result"), []byte{0}, []byte(`{"ok":1}`)),
		nil, nil, append(number, one...),
	}
}

// rowOf is a row within a row: the number of its columns, and of each its type, its length and its bytes.
func rowOf(columns ...[]byte) []byte {
	row := binary.BigEndian.AppendUint32(nil, uint32(len(columns)))
	for _, c := range columns {
		row = binary.BigEndian.AppendUint32(row, 25)
		if c == nil {
			row = binary.BigEndian.AppendUint32(row, 0xffffffff)
			continue
		}
		row = append(binary.BigEndian.AppendUint32(row, uint32(len(c))), c...)
	}
	return row
}

func TestReadSettled(t *testing.T) {
	t.Run("a whole row is the record", func(t *testing.T) {
		r, _, err := postgres.ReadSettled(settledRow())
		if err != nil || r == nil || r.State != effect.StateCommitted || string(r.Answer.Body) != `{"ok":1}` || string(r.Arguments) != `{"a":1}` {
			t.Errorf("ReadSettled = %+v, %v", r, err)
		}
	})
	t.Run("one without a payload is large", func(t *testing.T) {
		row := settledRow()
		row[lastMoveColumn-1] = nil
		if r, large, err := postgres.ReadSettled(row); err != nil || r != nil || !large {
			t.Errorf("ReadSettled = %+v, large: %t, %v", r, large, err)
		}
	})
	t.Run("one that is cut off anywhere is an error", func(t *testing.T) {
		whole := settledRow()
		for n := range len(whole) {
			if r, _, err := postgres.ReadSettled(whole[:n]); err == nil {
				t.Errorf("of %d columns ReadSettled = %+v", n, r)
			}
		}
		last := whole[lastMoveColumn]
		for n := range len(last) {
			row := settledRow()
			row[lastMoveColumn] = last[:n]
			if r, _, err := postgres.ReadSettled(row); err == nil {
				t.Errorf("with %d bytes of its last move ReadSettled = %+v", n, r)
			}
		}
	})
	t.Run("one of a call that did not ask is an error", func(t *testing.T) {
		for _, place := range []byte{0, 2, 255} {
			row := settledRow()
			row[len(row)-1] = []byte{place, 0, 0, 0, 0, 0, 0, place}
			if r, _, err := postgres.ReadSettled(row); err == nil {
				t.Errorf("place %d: ReadSettled = %+v", place, r)
			}
		}
	})
}

// Whatever a server, or something that stands for one, sends: it is read, or an error, and nothing is made up.
func FuzzReadSettled(f *testing.F) {
	f.Add(flatten(settledRow()))
	f.Add(flatten(settledRow()[:lastMoveColumn]))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		row := unflatten(data)
		r, large, err := postgres.ReadSettled(row)
		switch {
		case err != nil || r == nil:
			return
		case large, r.Ordinal != 1, r.State.IsOpen(), len(r.Arguments) > len(data), len(r.Answer.Body) > len(data)+1024:
			t.Errorf("ReadSettled = %+v, large: %t", r, large)
		}
	})
}

// FuzzReadSettled_lastMove spoils the row within the row alone, which is reached only when all else is right.
func FuzzReadSettled_lastMove(f *testing.F) {
	whole := settledRow()[lastMoveColumn]
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add(rowOf())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, last []byte) {
		row := settledRow()
		row[lastMoveColumn] = last
		r, large, err := postgres.ReadSettled(row)
		if err == nil && r != nil && (large || r.Ordinal != 1 || r.State.IsOpen()) {
			t.Errorf("ReadSettled = %+v, large: %t", r, large)
		}
	})
}

// flatten and unflatten make a row one input of the fuzzer's: of each column its length in two bytes, 65535 for NULL,
// and its bytes.
func flatten(row [][]byte) (data []byte) {
	for _, c := range row {
		if c == nil {
			data = append(data, 0xff, 0xff)
			continue
		}
		data = append(binary.BigEndian.AppendUint16(data, uint16(len(c))), c...)
	}
	return data
}

func unflatten(data []byte) (row [][]byte) {
	for len(data) >= 2 {
		n := int(binary.BigEndian.Uint16(data))
		data = data[2:]
		if n == 0xffff {
			row = append(row, nil)
			continue
		}
		n = min(n, len(data))
		row = append(row, data[:n:n])
		data = data[n:]
	}
	return row
}
