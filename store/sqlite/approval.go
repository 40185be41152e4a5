package sqlite

import (
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/undolog/undolog/effect"
)

// approvalColumns is a request for approval as a row has it: a document, the arguments that a person changed
// as they came, and, while the effect waits, its clocks.
type approvalColumns struct {
	document, edited      []byte
	decideUntil, useUntil sql.NullInt64
}

// approvalOf is the columns of a record that has an approval.
func approvalOf(r *effect.Record) (approvalColumns, error) {
	kept := *r.Approval
	kept.Arguments = nil
	document, err := json.Marshal(&kept)
	if err != nil {
		return approvalColumns{}, fmt.Errorf("encode approval %s: %w", kept.ID, err)
	}
	c := approvalColumns{document: document, edited: r.Approval.Arguments}
	if r.State == effect.StateAwaitingApproval {
		c.decideUntil, c.useUntil = nullMicros(kept.DecideUntil), nullMicros(kept.UseUntil)
	}
	return c, nil
}

// approval is what approvalOf made the columns of; nil when there is none.
func (c *approvalColumns) approval() (*effect.Approval, error) {
	if c.document == nil {
		return nil, nil
	}
	a := &effect.Approval{}
	if err := json.Unmarshal(c.document, a); err != nil {
		return nil, fmt.Errorf("decode approval: %w", err)
	}
	if c.edited != nil {
		a.Arguments = c.edited
	}
	return a, nil
}
