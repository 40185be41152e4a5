package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/reaper"
	"github.com/undolog/undolog/store"
)

func reapCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reap",
		Short: "Record what is over, of every tenant, once",
		Long: `Look through what is open in the log once: requests for approval whose time is over are recorded as
expired or void, claims whose process has gone or whose answer did not come in time as in doubt, and who may
decide is reminded when four fifths of the time are over. "undolog gateway" and "undolog serve" do so by
themselves every --reap-every; this is for logs that neither has open.`,
		Example: "  undolog reap",
		Args:    exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withLog(cmd, func(log *store.Log) error {
				done, err := reaper.New(log, nil).Round(cmd.Context())
				if asJSON {
					return errors.Join(err, writeJSON(cmd.OutOrStdout(), done))
				}
				fmt.Fprintf(cmd.OutOrStdout(), "expired %d, void %d, reminded %d, in doubt %d\n", done.Expired, done.Void, done.Reminded, done.InDoubt)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// reap has the log looked through every --reap-every until the returned function is called.
func (f *serverFlags) reap(ctx context.Context, k *kept, opts reaper.Options) (stop func()) {
	if f.reapEvery == 0 {
		return func() {}
	}
	opts.Every, opts.Logger = f.reapEvery, k.logger
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		reaper.New(k.log.Log, &opts).Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}
