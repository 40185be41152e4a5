package postgres

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/undolog/undolog/effect"
)

// approvalRow is an approval as a move leaves it.
type approvalRow struct {
	append   pgtype.UUID // the Append that made the move; NULL for a Begin's
	until    time.Time   // zero where the move leaves nothing awaiting
	approved bool
	document []byte
	edited   []byte
}

// newApprovalRow divides an approval into its columns.
func newApprovalRow(a *effect.Approval, leaves effect.State) (*approvalRow, error) {
	document := *a
	document.Arguments = nil // JSON encoders do not leave bytes as they are
	encoded, err := json.Marshal(&document)
	if err != nil {
		return nil, fmt.Errorf("encode approval %s: %w", a.ID, err)
	}
	row := &approvalRow{document: encoded, edited: a.Arguments}
	if leaves == effect.StateAwaitingApproval {
		row.until, row.approved = a.DecideUntil, a.IsApproved()
		if row.approved {
			row.until = a.UseUntil
		}
	}
	return row, nil
}

// args are the parameters that insertApproval takes, in order.
func (r *approvalRow) args() []any {
	return []any{r.append, timestamp(r.until), r.approved, r.document, r.edited}
}

// insertApproval writes the approval of the move that was made, if it was: by a statement "made" with its
// effect, its ordinal, its attempt and its tenant. Its parameters are the last five, of which the first has this number.
func insertApproval(first int) string {
	return fmt.Sprintf(`
	INSERT INTO undolog.approval (effect, ordinal, attempt, tenant, append, until, approved, document, edited)
	SELECT effect, ordinal, attempt, tenant, $%d::uuid, $%d::timestamptz, $%d::boolean, $%d::bytea, $%d::bytea
	FROM made`, first, first+1, first+2, first+3, first+4)
}

// readApproval puts an approval together again; nil when there was none.
func readApproval(document, edited []byte) (*effect.Approval, error) {
	if document == nil {
		return nil, nil
	}
	var a effect.Approval
	if err := json.Unmarshal(document, &a); err != nil {
		return nil, fmt.Errorf("decode approval: %w", err)
	}
	if edited != nil {
		a.Arguments = edited
	}
	return &a, nil
}
