package sqlite

import (
	"bytes"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// maxClaims bounds how many claims are remembered; those of remote invokers may be settled elsewhere.
const maxClaims = 1024

// maxRemembered bounds the arguments of a remembered claim.
const maxRemembered = 64 << 10

// known is what the writer remembers of its own durable writes. It decides nothing: rows are never
// updated, so that a remembered claim still stands exactly when the next ordinal can be inserted, which
// the insert itself finds out; and a heartbeat is written by its owner alone. Only who has the writer's
// turn touches it.
type known struct {
	claims map[claimKey]*effect.Record
	beats  map[string]time.Time // until when, by owner
}

type claimKey struct{ tenant, id string }

func newKnown() known {
	return known{claims: map[claimKey]*effect.Record{}, beats: map[string]time.Time{}}
}

// rememberClaim keeps a claim once it is durable.
func (t *tx) rememberClaim(r *effect.Record) {
	if len(r.Arguments) > maxRemembered || len(r.Answer.Body) > maxRemembered {
		return
	}
	kept := cloneRecord(r)
	claims := t.writer.known.claims
	t.learned = append(t.learned, func() {
		if len(claims) >= maxClaims {
			for k := range claims {
				delete(claims, k)
				break
			}
		}
		claims[claimKey{kept.Tenant, kept.ID}] = kept
	})
}

// takeClaim returns a remembered claim that the move would settle, and forgets it.
func (t *tx) takeClaim(tenant string, move *effect.Transition) *effect.Record {
	key := claimKey{tenant, move.Effect}
	r := t.writer.known.claims[key]
	if r == nil {
		return nil
	}
	delete(t.writer.known.claims, key)
	if move.Owner == "" || !store.MayMove(r, move, t.now) {
		return nil
	}
	return r
}

func (t *tx) rememberBeat(owner string, until time.Time) {
	beats := t.writer.known.beats
	t.learned = append(t.learned, func() { beats[owner] = until })
}

// cloneRecord shares no bytes with the original.
func cloneRecord(r *effect.Record) *effect.Record {
	c := *r
	c.Arguments = bytes.Clone(r.Arguments)
	c.Answer.Body = bytes.Clone(r.Answer.Body)
	return &c
}
