package sqlite

import (
	"context"
	"fmt"
)

// Ping reports whether the log can be read now, and is still the file that it was.
func (d *Driver) Ping(ctx context.Context) error {
	err := d.writer.file.inPlace()
	if err == nil {
		var version int64
		err = d.readers.QueryRowContext(ctx, `SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version`).Scan(&version)
	}
	if err != nil {
		return fmt.Errorf("ping log: %w", explain(err))
	}
	return nil
}
