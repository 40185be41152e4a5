package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/undolog/undolog/store"
)

// pruneStep is how many effects are looked at in one transaction.
const pruneStep = 1000

// Prune implements store.Driver, in many short transactions in the order of recording, between which others
// write.
func (d *Driver) Prune(ctx context.Context, p *store.Pruning) (pruned store.Pruned, err error) {
	walk := p.Walk
	if walk == nil {
		walk = &store.Walk{}
	}
	for place := walk.Place(""); !place.Ended; {
		s := stretch{of: p, after: place.After}
		var step store.Pruned
		err := d.writer.do(ctx, func(t *tx) (err error) {
			step, err = t.prune(&s)
			return err
		})
		if err != nil {
			return pruned, err
		}
		if place.Ended = s.last == 0; place.Ended {
			break
		}
		place.Pass(s.last, s.kept)
		if p.Add(&pruned, step); p.IsEnough(&pruned) {
			return pruned, nil
		}
	}
	walk.Ended = true
	return pruned, nil
}

// stretch are the effects that are looked at in one transaction.
type stretch struct {
	of          *store.Pruning
	after, last int64 // seq; last is 0 when none is old enough
	kept        int64 // of the first that is open or too young, or not among those meant; 0: none
}

func (s *stretch) args() []any {
	return []any{s.after, s.last, micros(s.of.Before), s.of.Tenant, s.of.Server}
}

// settledBefore are the effects of a stretch that were settled before a time. It names the states of
// effect.State.IsOpen: keep them equal.
const settledBefore = `
	SELECT e.seq
	FROM effect e
	JOIN transition t ON t.effect = e.seq AND t.ordinal = (SELECT MAX(ordinal) FROM transition WHERE effect = e.seq)
	WHERE e.seq > ?1 AND e.seq <= ?2 AND t.at < ?3
	  AND (?4 = '' OR e.tenant = ?4) AND (?5 = '' OR e.server = ?5)
	  AND t.state NOT IN ('claimed', 'waiting', 'in_doubt', 'awaiting_approval')`

// prune empties the payloads of the next stretch of effects, or counts them.
func (t *tx) prune(s *stretch) (pruned store.Pruned, err error) {
	// Effects that were begun later were settled later still.
	pruned.Looked, s.last, err = twoNumbers(t, `
		SELECT COUNT(*), MAX(seq)
		FROM (SELECT seq, created_at FROM effect WHERE seq > ? ORDER BY seq LIMIT ?)
		WHERE created_at < ?`, s.after, pruneStep, micros(s.of.Before))
	if err != nil || s.last == 0 {
		return store.Pruned{}, err
	}
	s.kept, err = number(t, `
		SELECT MIN(seq) FROM effect WHERE seq > ?1 AND seq <= ?2 AND seq NOT IN (`+settledBefore+`)`, s.args()...)
	if err != nil {
		return store.Pruned{}, err
	}
	pruned.Effects, pruned.Bytes, err = twoNumbers(t, `
		SELECT COUNT(*), SUM(size)
		FROM (
		  SELECT length(arguments)
		    + (SELECT COALESCE(SUM(COALESCE(length(answer), 0) + COALESCE(length(edited), 0)), 0)
		       FROM transition WHERE transition.effect = effect.seq) AS size
		  FROM effect
		  WHERE seq IN (`+settledBefore+`))
		WHERE size > 0`, s.args()...)
	if err != nil || pruned.Effects == 0 || s.of.Dry {
		return pruned, err
	}
	for _, query := range []string{
		`UPDATE effect SET arguments = x'' WHERE length(arguments) > 0 AND seq IN (` + settledBefore + `)`,
		`UPDATE transition SET answer = x'' WHERE length(answer) > 0 AND effect IN (` + settledBefore + `)`,
		`UPDATE transition SET edited = x'' WHERE length(edited) > 0 AND effect IN (` + settledBefore + `)`,
	} {
		if _, err := t.exec(query, s.args()...); err != nil {
			return store.Pruned{}, err
		}
	}
	return pruned, nil
}

// twoNumbers returns the integers of a query's only row, 0 for NULL.
func twoNumbers(q queryer, query string, args ...any) (a, b int64, err error) {
	rows, err := q.query(query, args...)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var m, n sql.NullInt64
	if rows.Next() {
		err = rows.Scan(&m, &n)
	}
	return m.Int64, n.Int64, errors.Join(err, rows.Err())
}
