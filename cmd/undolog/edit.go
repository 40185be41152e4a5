package main

import (
	"fmt"
	"io"
	"os"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

func editCommand() *cobra.Command {
	var f decideFlags
	var arguments string
	var approve bool
	cmd := &cobra.Command{
		Use:   "edit ID --arguments FILE --reason TEXT [--approve]",
		Short: "Change the arguments of a call before it is approved",
		Long: `Change the arguments of a call that waits for approval. What was approved of it before does not count any
more; with --approve you approve the changed call at once. When its agent makes the call again, the changed
arguments are sent, and the agent is told. An edit that would make another recorded call run twice is refused.`,
		Example: `  undolog edit 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42 --arguments smaller.json --reason "half now" --approve`,
		Args:    exactArgs(1, "the id of an effect"),

		ValidArgsFunction: completeIDs(effect.StateAwaitingApproval),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := f.decision(effect.DecideEdit)
			if err != nil {
				return err
			}
			if d.Arguments, err = readArguments(cmd.InOrStdin(), arguments); err != nil {
				return err
			}
			if err := decideEach(cmd, args, d); err != nil || !approve {
				return err
			}
			return decideEdited(cmd, args[0], &d)
		},
	}
	f.add(cmd, "why; required, and told to the agent")
	cmd.Flags().StringVar(&arguments, "arguments", "", "file with the whole arguments, a JSON object; - for standard input")
	cmd.Flags().BoolVar(&approve, "approve", false, "approve the changed call at once")
	return cmd
}

// decideEdited approves what has just been edited, and nothing that somebody else made of it since.
func decideEdited(cmd *cobra.Command, id string, edited *effect.Decision) error {
	digest, err := effect.DigestOf(edited.Arguments)
	if err != nil {
		return err
	}
	return withLog(cmd, func(log *store.Log) error {
		approve := *edited
		approve.Kind, approve.Arguments, approve.Complete = effect.DecideApprove, nil, digest
		return decideOne(cmd, log, &store.DecideParams{Tenant: tenantFlag(cmd), ID: id, Decision: approve})
	})
}

func readArguments(in io.Reader, path string) ([]byte, error) {
	var data []byte
	var err error
	switch path {
	case "":
		return nil, usagef("--arguments FILE is missing: it has the whole arguments as they are to be sent")
	case "-":
		data, err = io.ReadAll(io.LimitReader(in, maxArguments))
	default:
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read --arguments: %w", err)
	}
	v := jsontext.Value(data)
	if err := v.Compact(); err != nil || v.Kind() != '{' {
		return nil, usagef(`--arguments %s: want the arguments of the call, a JSON object such as {"account":"acme","amount":10}`, path)
	}
	return v, nil
}

const maxArguments = 64 << 20
