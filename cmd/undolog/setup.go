package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
	"github.com/undolog/undolog/store/sqlite"
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

// openLog opens the effect log that --db, $UNDOLOG_DB or the default names. ttl is how long this process
// counts as alive after its last heartbeat; 0 takes the store's default.
func openLog(cmd *cobra.Command, logger *slog.Logger, ttl time.Duration) (*store.Log, string, error) {
	path, err := dbPath(cmd)
	if err != nil {
		return nil, "", err
	}
	driver, err := sqlite.Open(cmd.Context(), path, &sqlite.Options{Logger: logger})
	if err != nil {
		return nil, "", err
	}
	log, err := store.Open(driver, &store.Options{Logger: logger, TTL: ttl})
	if err != nil {
		return nil, "", errors.Join(err, driver.Close())
	}
	return log, path, nil
}

// withLog runs f on an effect log that is there already, for commands that hold no claims. They make
// none: at a wrong path it would look like one in which nothing is pending.
func withLog(cmd *cobra.Command, f func(log *store.Log) error) error {
	path, err := dbPath(cmd)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no effect log at %s: the first \"undolog gateway\" begins it; --db or UNDOLOG_DB names another", path)
	}
	return withAnyLog(cmd, f)
}

// withAnyLog runs f on the effect log, and begins one where there is none.
func withAnyLog(cmd *cobra.Command, f func(log *store.Log) error) error {
	logger, err := newLogger(cmd)
	if err != nil {
		return err
	}
	log, _, err := openLog(cmd, logger, 0)
	if err != nil {
		return err
	}
	return errors.Join(f(log), log.Close())
}

func dbPath(cmd *cobra.Command) (string, error) {
	path, err := cmd.Flags().GetString("db")
	if err != nil {
		return "", err
	}
	if path == "" {
		path = os.Getenv("UNDOLOG_DB")
	}
	if strings.HasPrefix(path, "postgres://") || strings.HasPrefix(path, "postgresql://") {
		return "", usagef("--db: this version keeps its log in a SQLite file; PostgreSQL is not built yet")
	}
	if path == "" {
		dir, err := stateDir()
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, "undolog", "undolog.db")
	}
	return path, nil
}

// stateDir is where programs keep state of the user: the XDG base directory, or what stands for it.
func stateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	if runtime.GOOS == "windows" {
		return os.UserCacheDir()
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find state directory: %w; name the log with --db", err)
	}
	return filepath.Join(home, ".local", "state"), nil
}

// loadPolicy reads the file of --policy; nil without one.
func loadPolicy(path string) (*effect.Policy, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	policy, err := effect.ParsePolicy(path, data)
	if err != nil {
		return nil, fmt.Errorf("check policy: %w", err)
	}
	return policy, nil
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
