package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// waitingFlags are those of the commands that list what waits for somebody.
type waitingFlags struct {
	server, tool string
	everyTenant  bool
	limit        int
	json         bool
}

func (f *waitingFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.server, "server", "", "only calls of this server's tools, by its whole name")
	flags.StringVar(&f.tool, "tool", "", "only calls of tools that match this glob")
	flags.BoolVar(&f.everyTenant, "all-tenants", false, "of every tenant, not only of --tenant")
	flags.IntVarP(&f.limit, "limit", "n", 1000, "how many at the most, the newest")
	flags.BoolVar(&f.json, "json", false, "one JSON object a line")
}

// mostListed is more than anybody reads.
const mostListed = 1_000_000

func (f *waitingFlags) check(cmd *cobra.Command) error {
	switch {
	case f.limit < 1 || f.limit > mostListed:
		return usagef("--limit %d: want 1 to %d", f.limit, mostListed)
	case f.everyTenant && cmd.Flags().Changed("tenant"):
		return usagef("--all-tenants and --tenant cannot both be meant")
	}
	return nil
}

// list reads what waits, newest first, and says on standard error when there is more.
func (f *waitingFlags) list(cmd *cobra.Command, log *store.Log, wait func(store.Filter) *store.Filter) ([]*effect.Record, error) {
	tenants := []string{tenantFlag(cmd)}
	if f.everyTenant {
		var err error
		if tenants, err = log.Tenants(cmd.Context()); err != nil {
			return nil, err
		}
	}
	var list []*effect.Record
	for _, tenant := range tenants {
		of, err := log.List(cmd.Context(), wait(store.Filter{Tenant: tenant, Server: f.server, Tool: f.tool, Limit: f.limit + 1}))
		if err != nil {
			return nil, err
		}
		list = append(list, of...)
	}
	if f.everyTenant {
		slices.SortStableFunc(list, laterFirst)
	}
	if len(list) > f.limit {
		list = list[:f.limit]
		fmt.Fprintf(cmd.ErrOrStderr(), "showing the newest %d of more; narrow with --server, --tool or --tenant, or say --limit N\n", f.limit)
	}
	return list, nil
}

// whose is of whom nothing waits.
func (f *waitingFlags) whose(cmd *cobra.Command) string {
	whose := "tenant " + tenantFlag(cmd)
	if f.everyTenant {
		whose = "any tenant"
	}
	if f.server != "" || f.tool != "" {
		whose += " by such a tool"
	}
	return whose
}

// withTenant puts the tenant, or its head, behind the first two cells of a row where several tenants are listed.
func (f *waitingFlags) withTenant(row []string, cell string) []string {
	if !f.everyTenant {
		return row
	}
	return slices.Insert(row, 2, cell)
}
