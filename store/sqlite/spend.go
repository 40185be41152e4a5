package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// spent adds up what has been taken from each limit that the call would take from. An effect that may have
// been applied counts, with what its last claim took; the call's own, which may go on, does not stand in its
// own way.
func (t *tx) spent(p *store.Begin, f *effect.Facts) error {
	var own int64
	if f.Latest != nil && f.Latest.State.IsOpen() {
		own = f.Latest.Seq
	}
	f.Spends = p.Spends
	for i := range p.Spends {
		units, err := t.taken(p.Tenant(), &p.Spends[i], own)
		if err != nil {
			return err
		}
		f.Spent = append(f.Spent, units)
	}
	return nil
}

func (t *tx) taken(tenant string, s *effect.Spend, own int64) (units int64, err error) {
	since := int64(math.MinInt64)
	if s.Within > 0 {
		since = micros(t.now.Add(-s.Within))
	}
	// The sum of any units that are allowed can be more than an integer holds; of whole ones it cannot.
	rows, err := t.query(`
		SELECT SUM(s.units / ?1), SUM(s.units % ?1)
		FROM spend s
		JOIN effect e ON e.seq = s.effect
		LEFT JOIN transition t ON t.effect = s.effect
		      AND t.ordinal = (SELECT MAX(ordinal) FROM transition WHERE effect = s.effect)
		WHERE s.tenant = ?2 AND s.limit_name = ?3 AND s.subject = ?4 AND s.at > ?5 AND s.effect <> ?6
		  AND COALESCE(t.state, e.state) NOT IN ('released', 'failed', 'awaiting_approval', 'denied', 'expired', 'void')`,
		effect.Unit, tenant, s.Limit, s.Subject, since, own)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var whole, rest sql.NullInt64
	if rows.Next() {
		err = rows.Scan(&whole, &rest)
	}
	return saturated(whole.Int64, rest.Int64), errors.Join(err, rows.Err())
}

// saturated is whole units and millionths as millionths.
func saturated(whole, rest int64) int64 {
	whole, rest = whole+rest/effect.Unit, rest%effect.Unit
	if whole >= math.MaxInt64/effect.Unit {
		return math.MaxInt64
	}
	return whole*effect.Unit + rest
}

// spend notes what the claim takes from limits. An effect takes once, however often it is tried.
func (t *tx) spend(p *store.Begin, r *effect.Record) error {
	for _, s := range p.Spends {
		_, err := t.exec(`
			INSERT INTO spend (effect, tenant, limit_name, subject, units, at)
			VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (effect, limit_name, subject) DO UPDATE SET units = excluded.units, at = excluded.at`,
			r.Seq, r.Tenant, s.Limit, s.Subject, s.Units, micros(t.now))
		if err != nil {
			return fmt.Errorf("spend of limit %s: %w", s.Limit, err)
		}
	}
	return nil
}
