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

// selectSpent adds up what the effects that count have taken of each account within its time. An open effect of
// the call's own signature is left out: it is the one that would go on.
const selectSpent = `
	SELECT LEAST(COALESCE(SUM(u.units), 0), 9223372036854775807)::bigint
	FROM unnest($1::bytea[], $2::bigint[]) WITH ORDINALITY AS a(account, within, place)
	LEFT JOIN LATERAL (
	  SELECT s.units
	  FROM undolog.spend s
	  CROSS JOIN LATERAL (
	    SELECT e.signature, COALESCE(t.state, e.state) AS state
	    FROM undolog.effect e
	    LEFT JOIN LATERAL (
	      SELECT state FROM undolog.transition WHERE effect = e.id ORDER BY ordinal DESC LIMIT 1) t ON true
	    WHERE e.id = s.effect
	    OFFSET 0) e
	  WHERE s.account = a.account
	    AND (a.within IS NULL OR s.at > COALESCE($3::timestamptz, now()) - a.within * interval '1 microsecond')
	    AND e.state NOT IN ('awaiting_approval', 'released', 'failed', 'denied', 'expired', 'void')
	    AND (e.signature = $4 AND e.state IN ('claimed', 'waiting', 'in_doubt')) IS NOT TRUE) u ON true
	GROUP BY a.place
	ORDER BY a.place`

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
			f.Spent = nil
			for rows.Next() {
				var spent int64
				if err := rows.Scan(&spent); err != nil {
					return err
				}
				f.Spent = append(f.Spent, spent)
			}
			return nil
		},
	}
}

// spend writes what a claim takes, in its transaction. An effect takes it once, however often it is claimed; at
// counts from the last claim.
func (b *begin) spend(id pgtype.UUID) statement {
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
	return statement{
		sql: `
			INSERT INTO undolog.spend (account, effect, at, units, tenant, limit_name, subject)
			SELECT n.account, $2::uuid, COALESCE($1::timestamptz, now()), n.units, $3::text, n.limit_name, n.subject
			FROM unnest($4::bytea[], $5::bigint[], $6::text[], $7::text[]) AS n(account, units, limit_name, subject)
			ON CONFLICT (effect, account) DO UPDATE SET at = excluded.at, units = excluded.units`,
		args: []any{b.driver.clock.param(), id, text(b.p.Tenant()), accounts, units, limits, subjects},
	}
}
