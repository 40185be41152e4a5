package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func pendingCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "pending",
		Short: "List what waits for somebody",
		Long: `List the effects that wait for somebody: those in doubt, whose outcome a person must settle with
"undolog resolve", and those whose tool waits for another round or works on a task.`,
		Example: "  undolog pending",
		Args:    exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := newLogger(cmd)
			if err != nil {
				return err
			}
			log, _, err := openLog(cmd, logger, 0)
			if err != nil {
				return err
			}
			defer log.Close()
			list, err := log.Pending(cmd.Context(), tenantFlag(cmd), 1000)
			if err != nil {
				return err
			}
			p := &logPrinter{out: cmd.OutOrStdout(), json: asJSON, palette: paletteFor(cmd.OutOrStdout())}
			if len(list) == 0 && !asJSON {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing is pending")
			}
			return p.print(list)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}
