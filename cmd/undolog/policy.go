package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
)

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check, explain or begin a policy file",
		Long: `A policy file says what holds for each tool: whether it reads, may be repeated or can never be undone,
which arguments make two calls the same, and for how long. docs/policy.md describes it.`,
		Example: "  undolog policy init -- npx -y @modelcontextprotocol/server-filesystem ~/notes > undolog.yaml",
	}
	needsCommand(cmd)
	cmd.AddCommand(policyCheckCommand(), policyExplainCommand(), policySchemaCommand(), policyInitCommand())
	return cmd
}

func policyCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "check FILE",
		Short:   "Check a policy file",
		Example: "  undolog policy check undolog.yaml",
		Args:    exactArgs(1, "the policy file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			policy, err := loadPolicy(args[0])
			if err != nil {
				return err
			}
			for _, warning := range policy.Warnings() {
				fmt.Fprintln(cmd.OutOrStdout(), warning)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is a valid policy (%s)\n", args[0], policy.Digest)
			return nil
		},
	}
}

func policySchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of policy files",
		Example: "  undolog policy schema > policy.schema.json",
		Args:    exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), effect.PolicySchema())
			return err
		},
	}
}
