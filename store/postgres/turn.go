package postgres

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// takesTurns reports whether a verdict rests on what no constraint would find changed: a granted run, a standing
// grant, what limits have left, or that there is no equal call under another key.
func (b *begin) takesTurns(v *effect.Verdict, f *facts) bool {
	return v.UsesAgain != "" || v.Grant != "" || f.Latest == nil && b.asksAboutLookalikes() ||
		len(b.p.Spends) > 0 && claims(v.Action) && v.Action != effect.ActContinue
}

// turns are what the call must have to itself.
func (b *begin) turns() turns {
	t := turns{}
	if b.asksAboutLookalikes() || b.p.Identity.Rule != effect.RuleNone {
		t.take(b.turn())
	}
	if b.p.Contract.AsksGrants() {
		t.share(grantTurn(b.p.Tenant(), b.p.Call.Server, b.p.Call.Tool))
	}
	for i := range b.p.Spends {
		a := account(b.p.Tenant(), &b.p.Spends[i])
		t.take(numberOf(a[:]))
	}
	return t
}

// turn is the number of the lock under which equal calls take turns.
func (b *begin) turn() int64 {
	w := b.p.Identity.Window
	if w.IsZero() {
		w = b.p.Identity.Signature
	}
	return numberOf(w[:])
}

// inTurn decides once more and does what the verdict says, in one transaction in which nothing changes that it
// rests on. It is for the few calls that need it.
func (b *begin) inTurn(ctx context.Context) (begun *store.Begun, err error) {
	if err := b.driver.turning.enter(ctx); err != nil {
		return nil, err
	}
	defer b.driver.turning.leave()
	err = pgx.BeginTxFunc(ctx, b.driver.pool, inTurns, func(tx pgx.Tx) error {
		if err := b.turns().lock(ctx, tx); err != nil {
			return err
		}
		f, err := b.facts(ctx, tx)
		if err != nil {
			return err
		}
		if f.isOwn(b) || f.isOwnRequest(b) {
			return errLost // decided on outside
		}
		v := effect.Decide(b.p.Call, b.p.Identity, b.p.Contract, &f.Facts, b.p.Continuation)
		begun, err = b.act(ctx, tx, v, f)
		return err
	})
	if code(err) == uniqueViolation {
		return nil, errLost
	}
	if err != nil {
		return nil, err
	}
	return begun, nil
}

// act does what a verdict says, by a transaction of its own or in the one that gathered the facts.
func (b *begin) act(ctx context.Context, s sender, v effect.Verdict, f *facts) (*store.Begun, error) {
	switch v.Action {
	case effect.ActInsert:
		return b.insertIn(ctx, s, v, f)
	case effect.ActReclaim, effect.ActContinue, effect.ActApproved:
		return b.reclaim(ctx, s, v, f.Latest)
	case effect.ActRequest:
		return b.request(ctx, s, v, f)
	}
	return &store.Begun{Verdict: v, Record: b.p.Shown(&f.Facts, &v)}, nil
}

// turns are the locks under which transactions take turns whose verdicts no constraint protects from each other.
// Everybody takes them in the order of their numbers, so that no two wait for each other; two names of one
// number only wait for more than they must. They end with the transaction.
type turns map[int64]turnMode

// inTurns is how transactions begin that take turns: what they read after the lock is what was written before
// it, whatever isolation somebody has set meanwhile.
var inTurns = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

type turnMode bool

const (
	shared turnMode = false
	alone  turnMode = true
)

// take adds a lock that nobody else holds meanwhile.
func (t turns) take(n int64) { t[n] = alone }

// share adds a lock that any number hold who share it.
func (t turns) share(n int64) { t[n] = t[n] || shared }

// lock waits for all of them, however long others have them: they are waited for by many, and not forgotten.
func (t turns) lock(ctx context.Context, tx pgx.Tx) error {
	numbers := slices.Sorted(maps.Keys(t))
	modes := make([]bool, len(numbers))
	for i, n := range numbers {
		modes[i] = t[n] == alone
	}
	_, err := tx.Exec(ctx, `
		SELECT CASE WHEN l.alone THEN pg_advisory_xact_lock(l.number)::text ELSE pg_advisory_xact_lock_shared(l.number)::text END
		FROM (SELECT set_config('lock_timeout', '0', true) OFFSET 0) patient
		CROSS JOIN unnest($1::bigint[], $2::boolean[]) AS l(number, alone)`, numbers, modes)
	return err
}

// grantTurn is the lock of the standing grants for a tool: who claims on one shares it, who revokes one takes it.
func grantTurn(tenant, server, tool string) int64 { return hash("grant", tenant, server, tool) }

// numberOf is the number of a lock that a digest names.
func numberOf(digest []byte) int64 { return int64(binary.BigEndian.Uint64(digest)) }

// places are connections that those who take turns may hold at once, so that the others have some left.
type places chan struct{}

func newPlaces(conns int32) places { return make(places, max(conns/2, 1)) }

func (p places) enter(ctx context.Context) error {
	select {
	case p <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p places) leave() { <-p }
