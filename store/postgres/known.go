package postgres

import (
	"bytes"
	"sync"
	"time"

	"github.com/undolog/undolog/effect"
)

const (
	// maxClaims bounds how many claims are remembered; those of remote invokers may be settled
	// elsewhere.
	maxClaims = 4096
	// maxRemembered bounds the payloads of a remembered claim.
	maxRemembered = 64 << 10
	// maxSeen bounds each of the two generations of signatures that are remembered.
	maxSeen = 1 << 15
)

// known is what the driver remembers of the database. It decides nothing. Rows are never updated, so that a
// remembered claim still stands exactly when the next ordinal can be inserted, which the insert itself finds
// out; a signature that was there stays there, so that to insert it as new would be a round trip for
// nothing; and a heartbeat is written by its owner alone.
type known struct {
	mu      sync.Mutex
	claims  map[claimKey]*effect.Record
	seen    map[effect.Signature]struct{}
	before  map[effect.Signature]struct{} // the generation before seen
	beats   map[string]time.Time          // until when, by owner
	tenants map[string]struct{}
}

type claimKey struct{ tenant, id string }

func newKnown() known {
	return known{
		claims: map[claimKey]*effect.Record{}, seen: map[effect.Signature]struct{}{},
		beats: map[string]time.Time{}, tenants: map[string]struct{}{},
	}
}

func (k *known) addClaim(r *effect.Record) {
	if len(r.Arguments) > maxRemembered || len(r.Answer.Body) > maxRemembered {
		return
	}
	kept := *r // shares no bytes with the caller's
	kept.Arguments = bytes.Clone(r.Arguments)
	kept.Answer.Body = bytes.Clone(r.Answer.Body)
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.claims) >= maxClaims {
		for key := range k.claims {
			delete(k.claims, key)
			break
		}
	}
	k.claims[claimKey{r.Tenant, r.ID}] = &kept
}

// takeClaim returns a remembered claim and forgets it.
func (k *known) takeClaim(tenant, id string) *effect.Record {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := claimKey{tenant, id}
	r := k.claims[key]
	delete(k.claims, key)
	return r
}

func (k *known) addSignature(s effect.Signature) {
	if s.IsZero() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.seen) >= maxSeen {
		k.seen, k.before = make(map[effect.Signature]struct{}, maxSeen), k.seen
	}
	k.seen[s] = struct{}{}
}

func (k *known) hasSignature(s effect.Signature) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, seen := k.seen[s]
	_, before := k.before[s]
	return seen || before
}

func (k *known) beatUntil(owner string) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.beats[owner]
}

func (k *known) setBeat(owner string, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.beats[owner] = until
}

func (k *known) endBeat(owner string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.beats, owner)
}

// endBeats forgets all: the next claim of each owner is preceded by a new one.
func (k *known) endBeats() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.beats)
}

func (k *known) hasTenant(tenant string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, has := k.tenants[tenant]
	return has
}

func (k *known) addTenant(tenant string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tenants[tenant] = struct{}{}
}
