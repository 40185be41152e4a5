package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// completeIDs offers a shell the newest effects in one of the states; in any without states.
func completeIDs(states ...effect.State) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var list []*effect.Record
		err := withLog(cmd, func(log *store.Log) (err error) {
			list, err = log.List(cmd.Context(), &store.Filter{Tenant: tenantFlag(cmd), States: states, Limit: 100})
			return err
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var ids []cobra.Completion
		for _, r := range list {
			if strings.HasPrefix(r.ID, typed) {
				ids = append(ids, cobra.CompletionWithDesc(r.ID, clip(r.Tool, 24)+" "+clip(string(r.Arguments), 40)))
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// completeWords offers a shell the values that a flag may have.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // no such flag, or given twice
	}
}
