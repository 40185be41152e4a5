package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/postgres"
	"github.com/undolog/undolog/store/sqlite"
)

func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the log's schema to this program's, or look at it",
		Long: `The log's schema comes in steps. A gateway or "undolog serve" takes those that are missing when it starts,
if its role may; where the role that serves may not, one that owns the database does it here, before the
new version is started. Steps only add: replicas of the version before go on meanwhile.`,
		Example: `  undolog migrate up --db postgres://undolog_owner@db.example/undolog
  undolog migrate status --db postgres://undolog@db.example/undolog`,
	}
	needsCommand(cmd)
	cmd.AddCommand(migrateUpCommand(), migrateStatusCommand(), migrateRenumberCommand())
	return cmd
}

func migrateUpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "up",
		Short:   "Take the steps that are missing",
		Long:    `Take the steps that are missing, and begin the log where there is none. Any number may do so at once.`,
		Example: "  undolog migrate up --db postgres://undolog_owner@db.example/undolog",
		Args:    exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := logPlace(cmd)
			if err != nil {
				return err
			}
			if err := p.migrate(cmd.Context()); err != nil {
				return err
			}
			steps, err := p.steps(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is at version %d\n", p, steps[len(steps)-1].version)
			return nil
		},
	}
}

func migrateStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "List the steps and when they were taken",
		Long:    `List the steps and when they were taken. The exit code is 5 when one is missing.`,
		Example: "  undolog migrate status --db postgres://undolog@db.example/undolog",
		Args:    exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := logPlace(cmd)
			if err != nil {
				return err
			}
			steps, err := p.steps(cmd.Context())
			if err != nil {
				return err
			}
			return printSteps(cmd, p, steps)
		},
	}
}

func printSteps(cmd *cobra.Command, p place, steps []schemaStep) error {
	var rows [][]string
	missing := 0
	for _, s := range steps {
		taken := "missing"
		if s.taken {
			taken = localTime(s.at)
		} else {
			missing++
		}
		rows = append(rows, []string{fmt.Sprint(s.version), cmp.Or(s.name, "(of a newer undolog)"), taken})
	}
	if err := table(cmd.OutOrStdout(), rows); err != nil {
		return err
	}
	if missing > 0 {
		return fmt.Errorf("%s: %w: %d of its steps are missing; run: undolog migrate up", p, store.ErrSchema, missing)
	}
	return nil
}

// schemaStep is one step of a schema.
type schemaStep struct {
	version int64
	name    string
	taken   bool
	at      time.Time
}

// migrate takes the steps that are missing. A file's are taken whenever it is opened.
func (p place) migrate(ctx context.Context) error {
	if p.inPostgres() {
		if err := postgres.Migrate(ctx, string(p)); err != nil {
			return p.notOpened(err)
		}
		return nil
	}
	d, err := sqlite.Open(ctx, string(p), nil)
	if err != nil {
		return err
	}
	return d.Close()
}

// steps are those that this program knows, and those of a newer one that the database has, oldest first.
func (p place) steps(ctx context.Context) ([]schemaStep, error) {
	if err := p.isThere(); err != nil {
		return nil, err
	}
	var steps []schemaStep
	if !p.inPostgres() {
		all, err := sqlite.Status(ctx, string(p))
		for _, m := range all {
			steps = append(steps, schemaStep{m.Version, m.Name, m.Applied, m.AppliedAt})
		}
		return steps, err
	}
	all, err := postgres.Status(ctx, string(p))
	if err != nil {
		return nil, p.notOpened(err)
	}
	for _, m := range all {
		steps = append(steps, schemaStep{m.Version, m.Name, m.Applied, m.AppliedAt})
	}
	return steps, nil
}
