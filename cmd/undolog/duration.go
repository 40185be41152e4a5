package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/internal/timespan"
)

// duration is the flag of a length of time, which may be said in days and weeks too.
func duration(cmd *cobra.Command, d *time.Duration, name string, otherwise time.Duration, usage string) {
	*d = otherwise
	cmd.Flags().Var(timespan.NewValue(d), name, usage)
}

// inDays is a length of time in whole days, where it has such.
func inDays(d time.Duration) string {
	const day = 24 * time.Hour
	if d > 0 && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
}
