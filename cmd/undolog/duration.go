package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/internal/timespan"
)

// duration is the flag of a length of time, which may be said in days and weeks too.
func duration(cmd *cobra.Command, d *time.Duration, name string, otherwise time.Duration, usage string) {
	*d = otherwise
	cmd.Flags().Var(timespan.NewValue(d), name, usage)
}
