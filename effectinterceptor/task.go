package effectinterceptor

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Ended records the end of an exchange whose first answer was the handle of a task, for an engine that has
// followed the task while nobody asked for it. An end that is lost leaves the effect in doubt. What is on record
// already stays.
func (i *Interceptors) Ended(ctx context.Context, exchange string, end End) {
	o := i.unended(exchange)
	if o == nil {
		return
	}
	i.followed.Delete(o.effectID)
	i.settle(ctx, o, end.outcome())
}

// Followed notes that an engine follows the task of an exchange to its end, which keeps other processes from
// doing so too; false that it does not any more, without having told of the end.
func (i *Interceptors) Followed(exchange string, following bool) {
	o := i.unended(exchange)
	if o == nil || o.claim == nil {
		return
	}
	if following {
		i.followed.Store(o.effectID, nil)
		i.log.Hold(o.effectID)
		return
	}
	i.followed.Delete(o.effectID)
	i.log.Release(o.effectID)
}

// unended is an exchange that may still come to an end; nil when it is not known.
func (i *Interceptors) unended(exchange string) *open {
	if o := i.open.only(localExchange(exchange)); o != nil {
		return o
	}
	o, _ := i.waiting.get(exchange)
	return o
}

// Unfinished is an effect that waits for a task which nobody follows.
type Unfinished struct {
	Exchange string          // by which its end is told
	Handle   json.RawMessage // the answer that began the task
	At       time.Time       // when that was recorded
}

// unfinishedMost is how many tasks are taken up, the newest first.
const unfinishedMost = 1000

// Unfinished takes up the tasks of a principal on a server whose processes have gone: from then on each is known
// by an exchange of this process. Those that somebody follows are left to it.
func (i *Interceptors) Unfinished(ctx context.Context, tenant, principal, server string) ([]Unfinished, error) {
	list, err := i.log.List(ctx, &store.Filter{
		Tenant: firstOf(tenant, i.opts.Tenant), Server: server, States: []effect.State{effect.StateWaiting}, Limit: unfinishedMost,
	})
	if err != nil {
		return nil, fmt.Errorf("list unfinished tasks on %s: %w", server, err)
	}
	var found []Unfinished
	for _, r := range list {
		if r.Principal != principal || !isTask(r) || i.isFollowed(r) {
			continue
		}
		o, err := i.takeUp(ctx, r)
		if err != nil {
			i.opts.Logger.WarnContext(ctx, "task not taken up", slog.String("effect", r.ID), slog.Any("error", err))
			continue
		}
		exchange := rand.Text()
		o.keys = []openKey{localExchange(exchange)}
		i.waiting.add(exchange, o)
		found = append(found, Unfinished{Exchange: exchange, Handle: r.Answer.Body, At: r.ChangedAt})
	}
	return found, nil
}

func isTask(r *effect.Record) bool {
	s := shapeOf(r.Answer.Body)
	return s.resultType == "task" || s.resultType == "" && !s.content && s.task != ""
}

// isFollowed reports whether somebody follows the effect's task: this process, or one that lives.
func (i *Interceptors) isFollowed(r *effect.Record) bool {
	if _, followed := i.followed.Load(r.ID); followed {
		return true
	}
	return r.Owner != i.log.Owner() && i.log.Now().Before(r.OwnerUntil)
}

// takeUp is the recorded effect as if this process had begun it.
func (i *Interceptors) takeUp(ctx context.Context, r *effect.Record) (*open, error) {
	call := callOf(r)
	contract, err := i.contractOf(ctx, i.policy.Load(), call)
	if err != nil {
		return nil, err
	}
	o := &open{
		local: true, until: i.opts.Now().Add(contract.Timeout), call: call, contract: contract, effectID: r.ID, started: r.CreatedAt,
		claim:   &effect.Claim{Effect: r.ID, Tenant: r.Tenant, Attempt: r.Attempt, Ordinal: r.Ordinal, Owner: r.Owner},
		settled: true, waiting: true,
	}
	if contract.Schemas {
		o.schemas = i.schemasOf(ctx, call)
	}
	call.Arguments = nil
	return o, nil
}
