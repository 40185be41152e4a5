package sqlite

import (
	"context"
	"time"
)

// pruneStep is how many effects are looked at in one transaction.
const pruneStep = 1000

// Prune implements store.Driver, in many short transactions in the order of recording, between which others
// write.
func (d *Driver) Prune(ctx context.Context, before time.Time) (pruned int64, err error) {
	for after := int64(0); ; {
		var last, lost int64
		err := d.writer.do(ctx, func(t *tx) (err error) {
			last, lost, err = t.prune(after, before)
			return err
		})
		if err != nil || last == 0 {
			return pruned, err
		}
		pruned += lost
		after = last
	}
}

// settledBefore are the effects of a stretch that were settled before a time. It names the states of
// effect.State.IsOpen: keep them equal.
const settledBefore = `
	SELECT e.seq
	FROM effect e
	JOIN transition t ON t.effect = e.seq AND t.ordinal = (SELECT MAX(ordinal) FROM transition WHERE effect = e.seq)
	WHERE e.seq > ?1 AND e.seq <= ?2 AND t.at < ?3
	  AND t.state NOT IN ('claimed', 'waiting', 'in_doubt', 'awaiting_approval')`

// prune empties the payloads of the next stretch of effects; last is its end, 0 when there is none.
func (t *tx) prune(after int64, before time.Time) (last, lost int64, err error) {
	last, err = number(t, `SELECT MAX(seq) FROM (SELECT seq FROM effect WHERE seq > ? ORDER BY seq LIMIT ?)`, after, pruneStep)
	if err != nil || last == 0 {
		return 0, 0, err
	}
	lost, err = number(t, `
		SELECT COUNT(*)
		FROM effect
		WHERE seq IN (`+settledBefore+`)
		  AND (length(arguments) > 0 OR EXISTS (SELECT 1 FROM transition
		                                        WHERE transition.effect = effect.seq AND (length(answer) > 0 OR length(edited) > 0)))`,
		after, last, micros(before))
	if err != nil || lost == 0 {
		return last, 0, err
	}
	for _, query := range []string{
		`UPDATE effect SET arguments = x'' WHERE length(arguments) > 0 AND seq IN (` + settledBefore + `)`,
		`UPDATE transition SET answer = x'' WHERE length(answer) > 0 AND effect IN (` + settledBefore + `)`,
		`UPDATE transition SET edited = x'' WHERE length(edited) > 0 AND effect IN (` + settledBefore + `)`,
	} {
		if _, err := t.exec(query, after, last, micros(before)); err != nil {
			return 0, 0, err
		}
	}
	return last, lost, nil
}
