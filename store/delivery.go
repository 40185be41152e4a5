package store

import (
	"time"

	"github.com/undolog/undolog/effect"
)

// Know tells a record that a driver has read of the deliveries that its owner has not yet written. A driver
// MUST let it see every record on which it decides. Some of the deliveries may have been written meanwhile:
// to know them twice changes nothing.
func (p *Begin) Know(r *effect.Record) {
	for i := range p.Unwritten {
		if d := &p.Unwritten[i]; d.Effect == r.ID && d.Tenant == r.Tenant {
			d.tell(r)
		}
	}
}

// tell does to a record that was read what Write does in the database: the first arrival of the answer
// counts, and is taken back by its own time only. What arrived before the last move was another answer.
func (d *Delivery) tell(r *effect.Record) {
	at := d.At.UnixMicro()
	switch {
	case d.Withdrawn && r.Delivered && r.ArrivedAt.UnixMicro() == at:
		r.Delivered, r.ArrivedAt = false, time.Time{}
	case !d.Withdrawn && !r.Delivered && r.State != effect.StateClaimed && at >= r.ChangedAt.UnixMicro():
		r.Delivered, r.ArrivedAt = true, time.UnixMicro(at).UTC()
	}
}
