package sqlite

import (
	"context"
	"fmt"

	"github.com/undolog/undolog/effect"
)

const (
	// sweepAfter is how many effects may lie beyond the mark before who lists what is open moves it.
	sweepAfter = 1000
	// sweepStep is how many are looked at in one transaction.
	sweepStep = 5000
)

// candidates are all effects that are open, and few that are not: what is on the account, and claims beyond
// the mark that nothing has followed.
const candidates = `
	SELECT effect FROM open_effect
	UNION ALL
	SELECT n.seq FROM effect n
	WHERE n.seq > (SELECT seq FROM mark) AND NOT EXISTS (SELECT 1 FROM transition WHERE effect = n.seq)`

// account keeps open_effect: who lists what is open finds it there, or among the newest effects.
func (t *tx) account(r *effect.Record) error {
	query := `DELETE FROM open_effect WHERE effect = ?`
	switch {
	case r.State.IsOpen():
		query = `INSERT OR IGNORE INTO open_effect (effect) VALUES (?)`
	case r.Ordinal == 1 && r.Approval == nil: // it was claimed by its first row, which is on no account
		return nil
	}
	if _, err := t.exec(query, r.Seq); err != nil {
		return fmt.Errorf("account for effect %s: %w", r.ID, err)
	}
	return nil
}

// sweep moves the mark when many effects lie beyond it. Without it the list is as right, and slower.
func (d *Driver) sweep(ctx context.Context) error {
	for more := true; more; {
		beyond, err := number(snapshot{ctx, d.readers}, `SELECT MAX(seq) - (SELECT seq FROM mark) FROM effect`)
		if err != nil || beyond <= sweepAfter {
			return err
		}
		err = d.writer.do(ctx, func(t *tx) (err error) {
			more, err = t.sweep()
			return err
		})
		if err != nil {
			return fmt.Errorf("account for what is open: %w", err)
		}
	}
	return nil
}

// sweep moves the mark by one step and reports whether it did. First claims that nobody has settled go on
// the account, and what was settled since leaves it.
func (t *tx) sweep() (moved bool, err error) {
	mark, err := number(t, `SELECT seq FROM mark`)
	if err != nil {
		return false, err
	}
	newest, err := number(t, `SELECT MAX(seq) FROM effect`)
	if err != nil {
		return false, err
	}
	next := min(mark+sweepStep, newest)
	for _, s := range []struct {
		query string
		args  []any
	}{
		{`DELETE FROM open_effect
		  WHERE (SELECT state FROM transition WHERE effect = open_effect.effect ORDER BY ordinal DESC LIMIT 1)
		        NOT IN ('claimed', 'waiting', 'in_doubt', 'awaiting_approval')`, nil},
		// Numbers are looked up among the moves, so that no page of arguments is read.
		{`WITH RECURSIVE n (seq) AS (SELECT ? + 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < ?)
		  INSERT OR IGNORE INTO open_effect (effect)
		  SELECT seq FROM n
		  WHERE NOT EXISTS (SELECT 1 FROM transition WHERE effect = n.seq) AND EXISTS (SELECT 1 FROM effect WHERE seq = n.seq)`, []any{mark, next}},
		{`UPDATE mark SET seq = ?`, []any{next}},
	} {
		if _, err := t.exec(s.query, s.args...); err != nil {
			return false, err
		}
	}
	return next > mark, nil
}
