package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

func againCommand() *cobra.Command {
	var reason, person string
	cmd := &cobra.Command{
		Use:   "again ID",
		Short: "Let a settled call run once more",
		Long: `Let the call of a settled effect run once more: the next equal call is made instead of being answered
from the record. It is for a repeat that is meant. An effect in doubt is settled with "undolog resolve".`,
		Example: `  undolog again 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42 --reason "second parcel, same price"`,
		Args:    exactArgs(1, "the id of an effect"),

		ValidArgsFunction: completeIDs(effect.StateCommitted),
		RunE: func(cmd *cobra.Command, args []string) error {
			if person == "" {
				person = localUser()
			}
			return withLog(cmd, func(log *store.Log) error {
				p := store.AgainParams{Tenant: tenantFlag(cmd), ID: args[0], By: person, Reason: reason}
				if err := log.Again(cmd.Context(), p); err != nil {
					return notAgain(notThere(cmd, args[0], err), log.Now())
				}
				fmt.Fprintf(cmd.OutOrStdout(), "the next call equal to effect %s runs, once\n", args[0])
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept in the log")
	cmd.Flags().StringVar(&person, "by", "", byUsage)
	return cmd
}
