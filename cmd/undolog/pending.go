package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/store"
)

func pendingCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "pending",
		Short: "List what waits for somebody",
		Long: `List the effects that wait for somebody: those that wait for approval ("undolog approve", "undolog deny"),
those in doubt, whose outcome a person must settle ("undolog resolve"), and those whose tool waits for another
round or works on a task.`,
		Example: "  undolog pending",
		Args:    exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withLog(cmd, func(log *store.Log) error {
				list, err := log.Pending(cmd.Context(), tenantFlag(cmd), 1000)
				if err != nil {
					return err
				}
				if len(list) == 0 && !asJSON {
					fmt.Fprintln(cmd.OutOrStdout(), "nothing is pending")
				}
				return newLogPrinter(cmd.OutOrStdout(), asJSON, log.Now).print(list)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}
