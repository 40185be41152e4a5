package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// request records that a person is asked: as a new generation, or as the next move of the latest. Its times are
// those of the facts, since its document has them too.
func (b *begin) request(ctx context.Context, s sender, v effect.Verdict, f *facts) (*store.Begun, error) {
	b.sent = v
	r := b.p.NewRecord(&v, f.Now)
	ask := b.insertAwaiting
	if v.Generation == 0 {
		r, ask = b.p.Requested(&v, f.Latest, f.Now), b.moveToAwaiting
	}
	approval, err := newApprovalRow(r.Approval, r.State)
	if err != nil {
		return nil, err
	}
	asked := false
	if err := asTenant(ctx, s, r.Tenant, ask(r, approval, &asked)); err != nil {
		return nil, fmt.Errorf("request approval of effect %s: %w", r.ID, err)
	}
	if !asked {
		return nil, errLost
	}
	return &store.Begun{Verdict: v, Record: r}, nil
}

// insertAwaiting inserts an effect that nobody has claimed yet. It is no write of its caller's until then.
func (b *begin) insertAwaiting(r *effect.Record, approval *approvalRow, asked *bool) statement {
	return statement{
		sql: `
			WITH made AS (
			  INSERT INTO undolog.effect (
			    id, seq, run_hash, created_at, generation, signature, window_signature, args_digest, complete, tenant,
			    principal, session, trace, server, tool, tier, rule, scope, key, run,
			    occurrence, policy, source, lookalike_of, state, owner, arguments)
			  VALUES (
			    $1, pg_current_xact_id()::text::bigint << 16, $2, $3, $4, $5, $6, $7, $8, $9,
			    $10, $11, $12, $13, $14, $15::text::undolog.tier, $16::text::undolog.rule, $17, $18, $19,
			    $20, $21, $22, $23, 'awaiting_approval', '', $24)
			  ON CONFLICT DO NOTHING
			  RETURNING id AS effect, 0 AS ordinal, 1 AS attempt, tenant, seq)` + insertApproval(25) + `
			RETURNING (SELECT seq FROM made)`,
		args: append([]any{
			b.id, runHash(r.Run), timestamp(r.CreatedAt), int32(r.Generation), blob(r.Signature), blob(r.Window), r.ArgsDigest[:], r.Complete[:],
			text(r.Tenant), text(r.Principal), text(r.Session), text(r.Trace), text(r.Server), text(r.Tool), string(r.Tier), string(r.Rule),
			text(r.Scope), text(r.Key), text(r.Run), text(r.Occurrence), text(r.Policy), text(r.Source), text(r.LookalikeOf),
			[]byte(r.Arguments),
		}, approval.args()...),
		read: func(rows pgx.Rows) error {
			for rows.Next() {
				*asked = true
				if err := rows.Scan(&r.Seq); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// moveToAwaiting asks about an effect that was recorded before.
func (b *begin) moveToAwaiting(r *effect.Record, approval *approvalRow, asked *bool) statement {
	id, _ := parseID(r.ID)
	return statement{
		sql: `
			WITH made AS (
			  INSERT INTO undolog.transition (
			    effect, ordinal, attempt, at, is_error, tenant, state, owner, by, reason, continuation, answer_kind)
			  VALUES ($1, $2, $3, $4, false, $5, 'awaiting_approval', '', '', '', '', '')
			  ON CONFLICT (effect, ordinal) DO NOTHING
			  RETURNING effect, ordinal, attempt, tenant)` + insertApproval(6) + `
			RETURNING true`,
		args: append([]any{id, int32(r.Ordinal), int32(r.Attempt), timestamp(r.ChangedAt), text(r.Tenant)}, approval.args()...),
		read: readWhether(asked),
	}
}
