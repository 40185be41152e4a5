package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
)

// outlivePipes makes a write to an agent that has gone an error. By default it ends a program that writes
// to its standard output, in the middle of calls whose outcome it has to record. Signals that are ignored
// would stay so in the servers that we start; those that are caught do not.
func outlivePipes() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// newLogger writes to the command's standard error at the level of --log-level.
func newLogger(cmd *cobra.Command) (*slog.Logger, error) {
	name, err := cmd.Flags().GetString("log-level")
	if err != nil {
		return nil, err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(name)); err != nil {
		return nil, usagef("--log-level %s: want debug, info, warn or error", name)
	}
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level})), nil
}

// loadPolicy reads the file of --policy; nil without one.
func loadPolicy(path string) (*effect.Policy, error) {
	if path == "" {
		return nil, nil
	}
	data, err := readSettings(path)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	policy, err := effect.ParsePolicy(path, data)
	if err != nil {
		return nil, fmt.Errorf("check policy: %w", err)
	}
	return policy, nil
}

// readSettings reads a file that a person has written; of an endless one no more than shows that it is too
// large.
func readSettings(path string) (data []byte, err error) {
	const enough = 1 << 20
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return io.ReadAll(io.LimitReader(file, enough))
}

// localAgent is who calls where nothing authenticates: the agent of this user on this machine.
func localAgent() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return "agent:" + u.Username
	}
	return fmt.Sprintf("agent:uid-%d", os.Getuid())
}

// localUser is who gives the commands.
func localUser() string {
	return "user:" + strings.TrimPrefix(localAgent(), "agent:")
}

func tenantFlag(cmd *cobra.Command) string {
	tenant, err := cmd.Flags().GetString("tenant")
	if err != nil || tenant == "" {
		return effect.DefaultTenant
	}
	return tenant
}
