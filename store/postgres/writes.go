package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// write is a row on its way: an effect or a move. won says whether the row was inserted.
type write struct {
	request
	tenant string
	effect *effectRow
	move   *moveRow

	won bool
	seq int64
	at  time.Time
}

// writes are rows on their way.
type writes struct {
	driver *Driver
	groups[*write]

	sent, rows atomic.Int64 // transactions, and writes in them
}

func (w *writes) init(d *Driver) {
	w.driver = d
	w.groups.send = w.sendGroup
}

// do sends the write and waits for the answer. A caller whose context ends is let go while its write was not
// sent, and always when it is a move: that is found where it was made, by whoever tries again.
func (w *writes) do(ctx context.Context, r *write) error {
	r.bytes = r.size()
	return w.groups.do(ctx, r, r.move != nil)
}

// sendGroup answers every write of the group. When the database refuses the group, one of them is bad, and the
// others must not suffer for it; when it is away, each caller tries again.
func (w *writes) sendGroup(ctx context.Context, group []*write) {
	if len(group) == 0 {
		return
	}
	err := w.try(ctx, group)
	if err != nil && len(group) > 1 && !isPassing(err) {
		for _, r := range group {
			r.answer(w.try(ctx, []*write{r}))
		}
		return
	}
	answer(group, err)
}

// try sends a group as one transaction, in one round trip. It does not end with one caller's context, and
// has that one's time only when it is alone.
func (w *writes) try(ctx context.Context, group []*write) error {
	ctx, cancel := w.driver.groupContext(ctx, len(group))
	defer cancel()
	w.sent.Add(1)
	w.rows.Add(int64(len(group)))
	if len(group) == 1 && w.driver.mode.isOwn() {
		st := group[0].alone(w.driver.clock.param())
		return w.driver.askPrepared(ctx, st.sql, st.args, group[0].readWon)
	}
	return w.driver.exchange(ctx, len(group) == 1, w.statements(group)...)
}

// statements are those of a group: for each tenant its effects, then its moves, all in an order that every group
// keeps, so that no two of them wait for each other.
func (w *writes) statements(group []*write) (all []statement) {
	slices.SortFunc(group, (*write).compare)
	for len(group) > 0 {
		tenant := group[0].tenant
		n := slices.IndexFunc(group, func(r *write) bool { return r.tenant != tenant })
		if n < 0 {
			n = len(group)
		}
		all = append(all, w.ofTenant(group[:n])...)
		group = group[n:]
	}
	return all
}

func (w *writes) ofTenant(group []*write) (all []statement) {
	d, tenant, now := w.driver, group[0].tenant, w.driver.clock.param()
	isPrepared := d.mode.isPrepared()
	if isPrepared { // else the functions do that
		all = append(all, d.setTenant(tenant))
	}
	if len(group) == 1 && isPrepared {
		return append(all, group[0].insert(now))
	}
	effects, moves := map[uuid.UUID]*write{}, map[moveKey]*write{}
	effectRows, moveRows := newRows(newEffect), newRows(newMove)
	for i, r := range group {
		r.won = false // it may have been tried before
		if r.effect != nil {
			effects[r.effect.id] = r
			effectRows.add(r.effect.values(i))
		} else if key := r.move.place(); moves[key] == nil { // of two for one place the second has lost
			moves[key] = r
			moveRows.add(r.move.values())
		}
	}
	if len(effects) > 0 {
		all = append(all, d.insertAll(effectRows, tenant, now, func(id uuid.UUID, seq int64, at time.Time) { effects[id].win(seq, at) }))
	}
	if len(moves) > 0 {
		all = append(all, d.moveAll(moveRows, tenant, now, func(key moveKey, at time.Time) { moves[key].win(0, at) }))
	}
	return all
}

// insert is the statement of a write with no other of its tenant's beside it.
func (r *write) insert(now pgtype.Timestamptz) statement {
	if r.effect != nil {
		return r.statement(insertEffect, now)
	}
	return r.statement(insertOneMove, now)
}

// alone is the statement of a write that is a transaction.
func (r *write) alone(now pgtype.Timestamptz) statement {
	if r.effect != nil {
		return r.statement(r.effect.alone(), now)
	}
	return r.statement(insertMoveAlone, now)
}

func (r *write) statement(sql string, now pgtype.Timestamptz) statement {
	r.won = false // it may have been tried before
	if r.effect != nil {
		return r.effect.insert(sql, r.tenant, now, func(_ uuid.UUID, seq int64, at time.Time) { r.win(seq, at) })
	}
	return r.move.insert(sql, r.tenant, now, func(_ moveKey, at time.Time) { r.win(0, at) })
}

// size is about what the write carries: all of it that may be large.
func (r *write) size() int {
	if r.effect != nil {
		e := r.effect.record
		return len(e.Arguments) + len(e.Key) + len(e.Run) + len(e.Scope)
	}
	return len(r.move.move.Answer.Body) + len(r.move.move.Reason)
}

// readWon reads what a statement of this write alone returned, of its place the number of an effect.
func (r *write) readWon(row [][]byte) error {
	c := &cells{left: row}
	c.id()
	var seq int64
	if r.effect != nil {
		seq = c.long()
	} else {
		c.number()
	}
	at := c.time()
	if c.err != nil {
		return fmt.Errorf("read inserted row: %w", c.err)
	}
	r.win(seq, at)
	return nil
}

func (r *write) win(seq int64, at time.Time) { r.won, r.seq, r.at = true, seq, at }

// compare is the order in which everybody writes.
func (r *write) compare(s *write) int {
	switch c := cmp.Compare(r.tenant, s.tenant); {
	case c != 0:
		return c
	case r.effect != nil && s.effect != nil:
		return r.effect.compare(s.effect)
	case r.effect != nil:
		return -1
	case s.effect != nil:
		return +1
	}
	return r.move.compare(s.move)
}
