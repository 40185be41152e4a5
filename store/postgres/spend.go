package postgres

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/effect"
)

// account is where what a call takes from a limit is added up.
func account(tenant string, s *effect.Spend) [32]byte {
	h := sha256.New()
	for _, name := range []string{tenant, s.Limit, s.Subject} {
		var length [4]byte
		binary.BigEndian.PutUint32(length[:], uint32(len(name)))
		h.Write(length[:])
		h.Write([]byte(name))
	}
	return [32]byte(h.Sum(nil))
}

// selectSpent adds up what the effects that count have taken of each account within its time, and tells how many
// of them are looked at that need not be any more. An open effect of the call's own signature is left out: it is
// the one that would go on. OFFSET keeps the planner from joining what it can look up.
const selectSpent = `
	SELECT LEAST(COALESCE(c.units, 0) + COALESCE(u.units, 0), 9223372036854775807)::bigint, u.settled
	FROM unnest($1::bytea[], $2::bigint[]) WITH ORDINALITY AS n(account, within, place)
	CROSS JOIN LATERAL (
	  SELECT n.account, COALESCE(COALESCE($3::timestamptz, now()) - n.within * interval '1 microsecond', '-infinity') AS since) a
	CROSS JOIN LATERAL (
	  SELECT SUM(units) AS units
	  FROM undolog.spend
	  WHERE account = a.account AND counted AND at > a.since) c
	CROSS JOIN LATERAL (
	  SELECT SUM(s.units) FILTER (
	           WHERE e.state NOT IN ('awaiting_approval', 'released', 'failed', 'denied', 'expired', 'void')
	             AND (e.signature = $4 AND e.state IN ('claimed', 'waiting', 'in_doubt')) IS NOT TRUE) AS units,
	         COUNT(*) FILTER (WHERE e.state IN (` + stands + `)) AS settled
	  FROM (
	    SELECT effect, units
	    FROM undolog.spend
	    WHERE account = a.account AND NOT counted AND at > a.since
	    OFFSET 0) s
	  CROSS JOIN LATERAL (
	    SELECT e.signature, COALESCE(t.state, e.state) AS state
	    FROM undolog.effect e
	    LEFT JOIN LATERAL (
	      SELECT state FROM undolog.transition WHERE effect = e.id ORDER BY ordinal DESC LIMIT 1) t ON true
	    WHERE e.id = s.effect
	    OFFSET 0) e) u
	ORDER BY n.place`

// stands are the states from which no effect comes back to one that does not count.
const stands = `'committed', 'compensating', 'compensated', 'compensation_failed'`

func (b *begin) askSpent(f *facts) statement {
	var accounts [][]byte
	var within []pgtype.Int8
	for i := range b.p.Spends {
		a := account(b.p.Tenant(), &b.p.Spends[i])
		accounts = append(accounts, a[:])
		within = append(within, micros(b.p.Spends[i].Within))
	}
	f.Spends = b.p.Spends
	return statement{
		sql:  selectSpent,
		args: []any{accounts, within, b.driver.clock.param(), blob(b.p.Identity.Signature)},
		read: func(rows pgx.Rows) error {
			f.Spent, b.uncounted = nil, 0
			for rows.Next() {
				var spent, settled int64
				if err := rows.Scan(&spent, &settled); err != nil {
					return err
				}
				f.Spent = append(f.Spent, spent)
				b.uncounted += settled
			}
			return nil
		},
	}
}

// maxUncounted is how many effects are looked at again and again before it is noted that they count for ever.
const maxUncounted = 32

// spend writes what a claim takes, in its transaction. An effect takes it once, however often it is claimed; at
// counts from the last claim.
func (b *begin) spend(id pgtype.UUID) (statements []statement) {
	var accounts [][]byte
	var units []int64
	var limits, subjects []string
	for i := range b.p.Spends {
		s := &b.p.Spends[i]
		a := account(b.p.Tenant(), s)
		accounts = append(accounts, a[:])
		units = append(units, s.Units)
		limits = append(limits, text(s.Limit))
		subjects = append(subjects, text(s.Subject))
	}
	if b.uncounted > maxUncounted {
		statements = append(statements, count(accounts))
	}
	return append(statements, statement{
		sql: `
			INSERT INTO undolog.spend (account, effect, at, units, tenant, limit_name, subject)
			SELECT n.account, $2::uuid, COALESCE($1::timestamptz, now()), n.units, $3::text, n.limit_name, n.subject
			FROM unnest($4::bytea[], $5::bigint[], $6::text[], $7::text[]) AS n(account, units, limit_name, subject)
			ON CONFLICT (account, effect) DO UPDATE SET at = excluded.at, units = excluded.units, counted = false`,
		args: []any{b.driver.clock.param(), id, text(b.p.Tenant()), accounts, units, limits, subjects},
	})
}

// count notes what counts for ever, so that nobody looks for its state again.
func count(accounts [][]byte) statement {
	return statement{
		sql: `
			UPDATE undolog.spend s SET counted = true
			WHERE account = ANY ($1::bytea[]) AND NOT counted
			  AND (SELECT state FROM undolog.transition WHERE effect = s.effect ORDER BY ordinal DESC LIMIT 1) IN (` + stands + `)`,
		args: []any{accounts},
	}
}
