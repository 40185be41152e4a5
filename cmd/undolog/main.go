// Command undolog makes the tool calls of AI agents safe to repeat, to gate and to undo: a gateway in
// front of an MCP server, an interceptor server for other people's gateways, and the tools to read and
// settle the effect log.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

// Exit codes, as `undolog help exit-codes` documents them.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNotFound = 3
	exitConflict = 4
	exitSchema   = 5
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(800) // small live heap, much garbage per call: 2–3 times the throughput
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, end := withHangups(ctx)
	defer end()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(in)
	printed := &printer{w: out}
	root.SetOut(printed)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = printed.failed()
	}
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		err = errors.New("interrupted before it was done")
	}
	fmt.Fprintf(errs, "undolog: %v\n", err)
	return exitCode(err)
}

// usageError is a command line that cannot be carried out as written.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

func exitCode(err error) int {
	var usage *usageError
	var conflict *store.ConflictError
	var decided *effect.DecidedError
	var invalid *effect.InvalidError
	var forbidden *effect.ForbiddenError
	switch {
	case errors.As(err, &usage), errors.As(err, &invalid):
		return exitUsage
	case errors.Is(err, store.ErrNotFound):
		return exitNotFound
	case errors.As(err, &conflict), errors.As(err, &decided), errors.As(err, &forbidden) && (forbidden.Recorded != "" || forbidden.State != ""):
		return exitConflict
	case errors.Is(err, store.ErrSchema):
		return exitSchema
	}
	return exitFailed
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "undolog",
		Short: "Make the tool calls of AI agents safe to repeat, to gate and to undo",
		Long: `UndoLog stands between an AI agent and its MCP tools. Every call that changes something is
recorded before it happens, runs once however often it is retried, and can be listed and read.

Put "undolog gateway --" in front of the MCP server that you already use, and change nothing else.`,
		Example: `  undolog gateway -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  undolog log
  undolog show 0197b0c2-7d4e-7c3a-9a51-2f8e6c0d1b42`,
		Version:       programVersion(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate(versionLine())
	needsCommand(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see %q", err, cmd.CommandPath()+" --help")
	})
	flags := root.PersistentFlags()
	flags.String("db", "", `effect log: a SQLite file, or postgres://ROLE@HOST/DATABASE (default $UNDOLOG_DB, else undolog/undolog.db in the user's state directory); see "undolog help db"`)
	flags.String("tenant", "default", "tenant whose effects are meant")
	flags.String("log-level", "warn", "what goes to standard error: debug, info, warn or error")
	completeWords(root, "log-level", "debug", "info", "warn", "error")
	root.PersistentPreRunE = namesSomething
	root.SetHelpCommand(helpCommand())
	root.AddCommand(
		gatewayCommand(), serveCommand(), uiCommand(),
		logCommand(), showCommand(), eventsCommand(), pendingCommand(), resolveCommand(), againCommand(),
		approvalsCommand(), editCommand(), grantCommand(), reportCommand(), reapCommand(), pruneCommand(),
		policyCommand(), chainCommand(), migrateCommand(), conformanceCommand(), versionCommand(), dbTopic(), exitCodesTopic(),
	)
	root.AddCommand(decideCommands()...)
	return root
}

// namesSomething refuses --db and --tenant without a name, as a script gives them whose variable is not set: the default
// is hardly what it means.
func namesSomething(cmd *cobra.Command, _ []string) error {
	for _, name := range []string{"db", "tenant"} {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed && flag.Value.String() == "" {
			return usagef("--%s is empty: name one, or leave it out", name)
		}
	}
	return nil
}

// helpCommand is cobra's, which takes an unknown topic for none.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		Example: `  undolog help grant give
  undolog help exit-codes`,
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, sub := range cmd.Root().Commands() {
				names = append(names, sub.Name())
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, left, err := cmd.Root().Find(args)
			if err != nil || len(left) > 0 {
				return usagef("there is no help on %q: see \"undolog --help\"", strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// exitCodesTopic is a help topic, not a command.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long: `Exit codes of undolog:

  0  done
  1  it failed; the message says what and what to do
  2  the command line cannot be carried out as written
  3  there is no such effect, or grant
  4  the effect stands elsewhere than the command needs, or an edit would make it one that is on record: nothing
     was changed
  5  the log's schema is another version's, or it has none yet: "undolog migrate up", or a newer undolog`,
	}
}

// dbTopic is a help topic, not a command.
func dbTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "db",
		Short: "Where the effect log is kept",
		Long: `The effect log is kept in a SQLite file, for the processes of one machine, or in a PostgreSQL database
(15 or newer), for any number of replicas. --db names it, else $UNDOLOG_DB.

  undolog.db                                    a file, made with mode 0600 where there is none
  postgres://undolog@db.example/undolog         a database; the password from PGPASSWORD or ~/.pgpass
  postgres://undolog:SECRET@db.example/undolog?sslmode=verify-full

In UNDOLOG_DB a URL with a password is seen by no other user, and not by the servers that a gateway
starts; on the command line it is seen by everybody on the machine. Parameters of the URL are libpq's
(sslmode, sslrootcert, connect_timeout, target_session_attrs, …) and

  pool_max_conns           connections that one process has at the most (default 16; 2 are enough for it to
                           work: none is held while a tool runs)
  pool_max_conn_lifetime   how long one is used (default 1h)
  default_query_exec_mode  cache_describe, where PgBouncer shares connections by transaction; found out without it

The role must be no superuser and must not bypass row-level security: it keeps the tenants apart. It owns
the database, or has been granted what docs/postgres.md lists.`,
	}
}

// needsCommand makes a command that only has others print its help, and refuse names that it does not have.
func needsCommand(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	cmd.DisableFlagsInUseLine = true
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		advice := fmt.Sprintf("see %q", cmd.CommandPath()+" --help")
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			advice = fmt.Sprintf("did you mean %q?", cmd.CommandPath()+" "+near[0])
		}
		return usagef("%s has no command %q: %s", cmd.CommandPath(), args[0], advice)
	}
}

// mayMeanServer says of an unknown flag that it may be meant for the server.
func mayMeanServer(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; put \"--\" before the server's command and its own flags; see %q", err, cmd.CommandPath()+" --help")
	})
}

// exactArgs wants n arguments and says in words which.
func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%s takes %s; see %q", cmd.CommandPath(), what, cmd.CommandPath()+" --help")
		}
		return nil
	}
}
