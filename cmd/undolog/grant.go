package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/internal/effectjson"
	"github.com/undolog/undolog/store"
)

func grantCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "grant",
		Short: "Approve calls in advance, list and revoke such grants",
		Long: `A standing grant approves calls before they are made: those with the very same arguments, those for
which a condition holds, or every call of a tool. It ends when its time is over, when it is revoked, and when
the tool's definition changes. Limits of the policy, and what it denies, hold all the same.`,
		Example: `  undolog grant give --effect 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42 --for 24h --reason "nightly report"
  undolog grant list`,
	}
	needsCommand(cmd)
	cmd.AddCommand(grantGiveCommand(), grantListCommand(), grantRevokeCommand())
	return cmd
}

type grantFlags struct {
	decideFlags
	effect, server, tool, where, principal string
	any                                    bool
}

func grantGiveCommand() *cobra.Command {
	var f grantFlags
	cmd := &cobra.Command{
		Use:   "give (--effect ID | --server NAME --tool NAME (--where CEL | --any)) --reason TEXT",
		Short: "Approve calls in advance",
		Long: `Approve calls in advance. With --effect, those of its tool with the very same arguments, whoever makes
them; with --where, those of a tool for which a CEL condition on args, principal, run and annotations holds;
with --any, every call of a tool.`,
		Example: `  undolog grant give --server bank --tool refund --where 'args.amount <= 20' --for 8h --reason "support shift"`,
		Args:    exactArgs(0, "no arguments"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return runGrant(cmd, &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.effect, "effect", "", "an effect that was made or asked for: its tool and its exact arguments")
	flags.StringVar(&f.server, "server", "", "the server, by its whole name")
	flags.StringVar(&f.tool, "tool", "", "the tool, by its whole name")
	flags.StringVar(&f.where, "where", "", "a CEL condition on the call")
	flags.BoolVar(&f.any, "any", false, "every call of the tool")
	flags.StringVar(&f.principal, "principal", "", "only calls of this caller, such as agent:ada (default any)")
	duration(cmd, &f.span, "for", 24*time.Hour, "how long it holds, such as 8h, 2d or 1w; 0 is until it is revoked")
	f.add(cmd, "why; required")
	return cmd
}

func runGrant(cmd *cobra.Command, f *grantFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	return withLog(cmd, func(log *store.Log) error {
		g, err := f.grant(cmd, log)
		if err != nil {
			return err
		}
		made, err := log.Grant(cmd.Context(), *g)
		if err != nil {
			return err
		}
		until := "until it is revoked"
		if !made.ExpiresAt.IsZero() {
			until = "until " + localTime(made.ExpiresAt)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "grant %s: %s on %s %s; \"undolog grant revoke\" ends it\n",
			made.ID, grantWords(made), printable(made.Server), until)
		return nil
	})
}

func (f *grantFlags) check() error {
	named := f.server != "" || f.tool != "" || f.where != "" || f.any
	switch {
	case strings.TrimSpace(f.reason) == "":
		return usagef("say with --reason why these calls need no approval of their own")
	case f.span < 0:
		return usagef("--for %s: cannot be negative", f.span)
	case f.effect != "" && named:
		return usagef("--effect names the tool and the arguments: leave --server, --tool, --where and --any out")
	case f.effect != "":
		return nil
	case f.server == "" || f.tool == "":
		return usagef("say --effect ID, or --server and --tool")
	case f.any == (f.where != ""):
		return usagef("say --where CEL, or --any for every call of the tool")
	}
	return nil
}

func (f *grantFlags) grant(cmd *cobra.Command, log *store.Log) (*effect.Grant, error) {
	g := &effect.Grant{
		Tenant: tenantFlag(cmd), Server: f.server, Tool: f.tool, Kind: effect.GrantTool, Where: f.where,
		Principal: f.principal, Reason: f.reason,
	}
	var err error
	if g.By, err = f.who(); err != nil {
		return nil, err
	}
	if f.where != "" {
		g.Kind = effect.GrantWhere
	}
	if f.effect != "" {
		shown, err := log.Show(cmd.Context(), g.Tenant, f.effect)
		if err != nil {
			return nil, notThere(cmd, f.effect, err)
		}
		r := shown.Record
		g.Kind, g.Server, g.Tool, g.Complete = effect.GrantExact, r.Server, r.Tool, r.Complete
	}
	if f.span > 0 {
		g.ExpiresAt = log.Now().Add(f.span)
	}
	tools, err := log.Tools(cmd.Context(), g.Tenant, g.Server)
	if err != nil {
		return nil, err
	}
	for _, t := range tools {
		if t.Name == g.Tool {
			g.Definition = t.Digest
			return g, nil
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "undolog: %s of %s is not a tool that was seen: is it spelled as \"undolog log\" shows it?\n", g.Tool, g.Server)
	return g, nil
}

func grantWords(g *effect.Grant) string {
	switch g.Kind {
	case effect.GrantExact:
		return printable(g.Tool) + " with arguments " + g.Complete.String()[:15] + "…"
	case effect.GrantWhere:
		return printable(g.Tool) + " where " + printable(g.Where)
	}
	return "every call of " + printable(g.Tool)
}

func grantListCommand() *cobra.Command {
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List standing grants",
		Example: "  undolog grant list --all",
		Args:    exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withLog(cmd, func(log *store.Log) error {
				grants, err := log.Grants(cmd.Context(), &store.GrantFilter{Tenant: tenantFlag(cmd), Active: !all, Limit: 1000})
				if err != nil {
					return err
				}
				return printGrants(cmd, grants, log.Now(), asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	cmd.Flags().BoolVar(&all, "all", false, "also those that are over or were revoked")
	return cmd
}

func printGrants(cmd *cobra.Command, grants []*effect.Grant, now time.Time, asJSON bool) error {
	w := cmd.OutOrStdout()
	if len(grants) == 0 && !asJSON {
		fmt.Fprintf(w, "tenant %s has no standing grant\n", tenantFlag(cmd))
		return nil
	}
	rows := [][]string{{"GIVEN", "HOLDS", "BY", "SERVER", "CALLS", "FOR", "ID"}}
	for _, g := range grants {
		if asJSON {
			if err := writeJSON(w, effectjson.GrantOf(g, now)); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{
			localTime(g.CreatedAt), holds(g, now), printable(g.By), clip(g.Server, 36), clip(grantWords(g), 60), printable(orAny(g.Principal)), g.ID,
		})
	}
	if asJSON {
		return nil
	}
	return table(w, rows)
}

func holds(g *effect.Grant, now time.Time) string {
	switch {
	case !g.RevokedAt.IsZero():
		return "revoked by " + printable(g.RevokedBy)
	case !g.IsActive(now):
		return "over"
	case g.ExpiresAt.IsZero():
		return "until revoked"
	}
	return "until " + localTime(g.ExpiresAt)
}

func orAny(s string) string {
	if s == "" {
		return "any caller"
	}
	return s
}

func grantRevokeCommand() *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use:     "revoke ID --reason TEXT",
		Short:   "End a standing grant",
		Example: `  undolog grant revoke 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42 --reason "the shift is over"`,
		Args:    exactArgs(1, "the id of a grant"),
		RunE: func(cmd *cobra.Command, args []string) error {
			by, err := f.who()
			switch {
			case err != nil:
				return err
			case strings.TrimSpace(f.reason) == "":
				return usagef("say with --reason why the grant ends")
			}
			return withLog(cmd, func(log *store.Log) error {
				g, revoked, err := log.Revoke(cmd.Context(), tenantFlag(cmd), args[0], by, f.reason)
				switch {
				case err != nil:
					return notThereGrant(tenantFlag(cmd), args[0], err)
				case !revoked:
					fmt.Fprintf(cmd.OutOrStdout(), "grant %s was revoked before, by %s at %s\n", g.ID, g.RevokedBy, localTime(g.RevokedAt))
				default:
					fmt.Fprintf(cmd.OutOrStdout(), "grant %s is revoked: calls that it covered need approval again\n", g.ID)
				}
				return nil
			})
		},
	}
	f.add(cmd, "why; required")
	return cmd
}
