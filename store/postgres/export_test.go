package postgres

import "github.com/undolog/undolog/effect"

// ReadSettled reads a row of settledColumns as the server sends it, and its place, for the only call that asks; nil
// when there is more to know.
func ReadSettled(row [][]byte) (r *effect.Record, large bool, err error) {
	q := &read{more: true}
	err = readSettled(row, []*read{q})
	return q.latest.Record, q.large, err
}

// Inserts are the statements that functions of the schema say too, by the functions' names.
var Inserts = map[string]string{"insert_effects": insertEffects, "insert_moves": insertMoves}
