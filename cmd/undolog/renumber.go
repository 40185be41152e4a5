package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/store/postgres"
)

func migrateRenumberCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "renumber",
		Short: "Make a log usable that was restored from a dump of another PostgreSQL cluster",
		Long: `Number the rows of a log anew that was restored from a dump of another PostgreSQL cluster. Rows are numbered by the
cluster's transactions; in one that has begun fewer of them they would be taken for later than all that is recorded
from then on, and no program starts on such a log. The order stays. Nothing else may use the log meanwhile, and
positions that somebody has kept of its streams say nothing any more. The role must own the tables.`,
		Example: "  undolog migrate renumber --db postgres://undolog_owner@db.example/undolog",
		Args:    exactArgs(0, "no arguments"),
		RunE:    runMigrateRenumber,
	}
}

func runMigrateRenumber(cmd *cobra.Command, _ []string) error {
	p, err := logPlace(cmd)
	if err != nil {
		return err
	}
	if !p.inPostgres() {
		return usagef("%s is a file: only logs in PostgreSQL are numbered by their server", p)
	}
	needed, err := postgres.Renumber(cmd.Context(), string(p))
	if err != nil {
		return p.notOpened(err)
	}
	said := "was numbered anew"
	if !needed {
		said = "needs no other numbers"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", p, said)
	return nil
}
