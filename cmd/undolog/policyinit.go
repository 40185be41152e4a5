package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/undolog/undolog/internal/splice"
)

func policyInitCommand() *cobra.Command {
	var upstream, out string
	cmd := &cobra.Command{
		Use:   "init (-- COMMAND ARGS… | --upstream URL) [--out FILE]",
		Short: "Write a starting policy from the tools of a server",
		Long: `Connect to an MCP server, read its tools, and write a policy to start from: one rule a tool with the tier
that its annotations claim, its arguments, and comments on what to look at. Nothing on the server is called.`,
		Example: "  undolog policy init --out undolog.yaml -- npx -y @modelcontextprotocol/server-filesystem ~/notes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (upstream == "") == (len(args) == 0) {
				return usagef("name the server: -- COMMAND ARGS…, or --upstream URL")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			server, tools, err := listTools(ctx, upstream, args, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			policy := startingPolicy(server, tools)
			if out == "" {
				_, err := cmd.OutOrStdout().Write(policy)
				return err
			}
			return writeNew(out, policy)
		},
	}
	mayMeanServer(cmd)
	cmd.Flags().StringVar(&upstream, "upstream", "", "URL of a Streamable HTTP server, in place of a command")
	cmd.Flags().StringVar(&out, "out", "", "file to write; it must not be there yet (default standard output)")
	return cmd
}

// writeNew writes a file that must not be there yet.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("write policy: %s is there already; name another file or remove it", path)
	}
	if err != nil {
		return fmt.Errorf("write policy: %w", err)
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// listTools connects to a server and reads its name and all its tools.
func listTools(ctx context.Context, upstream string, command []string, stderr io.Writer) (string, []*mcp.Tool, error) {
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: upstream}
	if upstream == "" {
		c := exec.CommandContext(ctx, command[0], command[1:]...)
		c.Stderr = stderr
		transport = &mcp.CommandTransport{Command: c}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "undolog", Version: programVersion()}, nil)
	session, err := client.Connect(ctx, transport, nil)
	if err != nil {
		return "", nil, fmt.Errorf("connect to %s: %w: is it an MCP server, and does it run?", cmp.Or(upstream, strings.Join(command, " ")), err)
	}
	defer session.Close()
	var tools []*mcp.Tool
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			return "", nil, fmt.Errorf("list tools: %w", err)
		}
		tools = append(tools, tool)
	}
	name := "server"
	if init := session.InitializeResult(); init != nil && init.ServerInfo != nil && init.ServerInfo.Name != "" {
		name = init.ServerInfo.Name
	}
	return name, tools, nil
}

// startingPolicy is a policy file with one rule a tool.
func startingPolicy(server string, tools []*mcp.Tool) []byte {
	return startingPolicies([]*serverTools{{server, tools}})
}

func startingPolicies(servers []*serverTools) []byte {
	var b bytes.Buffer
	var names []string
	for _, s := range servers {
		names = append(names, oneLine(s.server))
	}
	fmt.Fprintf(&b, `# Policy for the tools of %s, to start from. docs/policy.md says what every field does.
#
# tier says what may be done with a call whose outcome is not known:
#   read          changes nothing: never recorded before it runs, never answered from the record
#   idempotent    doing it twice is doing it once: may run again
#   irreversible  cannot be undone: runs once, and a lost outcome is for a person to settle
# The tiers below are what the server's annotations claim. Check each: only you know whether it is true.
#
# What cannot be undone asks a person first, with "undolog approvals" or "undolog ui"; a tool that no rule names
# is irreversible. To look on for a while and hold nothing back, run the gateway with --shadow and read
# "undolog report". "undolog policy explain CALL.json" says what holds for a call.
version: 1
tools:
`, strings.Join(names, ", "))
	rules := 0
	for _, s := range servers {
		for _, t := range s.tools {
			writeRule(&b, s.server, t)
			rules++
		}
	}
	if rules == 0 {
		b.WriteString("  []\n")
	}
	return b.Bytes()
}

// serverTools are the tools of one server.
type serverTools struct {
	server string
	tools  []*mcp.Tool
}

// writeRule writes the rule of one tool. A name is a glob that matches itself; globs have no escapes.
func writeRule(b *bytes.Buffer, server string, t *mcp.Tool) {
	fmt.Fprintf(b, "\n")
	if t.Description != "" {
		fmt.Fprintf(b, "  # %s\n", clip(oneLine(t.Description), 100))
	}
	tier, why := suggestedTier(t)
	fmt.Fprintf(b, "  - server: %s\n", quoteYAML(server+"*"))
	fmt.Fprintf(b, "    tool: %s\n", quoteYAML(t.Name))
	fmt.Fprintf(b, "    tier: %s   # %s\n", tier, why)
	if tier == "read" {
		return
	}
	arguments, keys := argumentNames(t.InputSchema)
	if tier == "irreversible" {
		writeApproval(b, arguments)
	}
	if len(keys) > 0 {
		fmt.Fprintf(b, "    key: %s   # two calls with the same value are the same call\n", quoteYAML(keys[0]))
	}
	if len(arguments) > 0 {
		fmt.Fprintf(b, "    # volatile: [%s]   # name here what differs between two tries of the same call\n", strings.Join(arguments, ", "))
	}
}

// writeApproval lets the calls of a tool that cannot be undone ask, and shows how to ask less.
func writeApproval(b *bytes.Buffer, arguments []string) {
	fmt.Fprintf(b, "    approve: always   # or never, or a condition%s\n", exampleCondition(arguments))
	fmt.Fprintf(b, "    repeat: replay   # an equal call soon after is answered from the record; run: it is a new call; ask\n")
}

// exampleCondition is a condition on the first argument.
func exampleCondition(arguments []string) string {
	if len(arguments) == 0 {
		return ""
	}
	return fmt.Sprintf(" such as '%s in args'", arguments[0])
}

func suggestedTier(t *mcp.Tool) (tier, why string) {
	switch a := t.Annotations; {
	case a != nil && a.ReadOnlyHint:
		return "read", "annotated readOnlyHint"
	case a != nil && a.IdempotentHint:
		return "idempotent", "annotated idempotentHint"
	case looksLikeRead(t.Name):
		return "irreversible", "not annotated; the name sounds like a read: if it changes nothing, write read"
	}
	return "irreversible", "not annotated as safe to repeat"
}

func looksLikeRead(name string) bool {
	for _, prefix := range []string{"get", "list", "read", "search", "find", "query", "describe", "fetch", "show", "count"} {
		if rest, ok := strings.CutPrefix(strings.ToLower(name), prefix); ok && (rest == "" || strings.ContainsAny(rest[:1], "_-./")) {
			return true
		}
	}
	return false
}

// argumentNames lists a tool's arguments in the order of its schema, and those that sound like an
// idempotency key.
func argumentNames(schema any) (names, keys []string) {
	raw, err := json.Marshal(schema)
	if err != nil {
		return nil, nil
	}
	var s struct {
		Properties json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(raw, &s) != nil || len(s.Properties) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(s.Properties))
	if _, err := dec.Token(); err != nil {
		return nil, nil
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return names, keys
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return names, keys
		}
		text, _ := name.(string)
		if plain := strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(text)); plain == "idempotencykey" {
			keys = append(keys, text)
			continue
		}
		names = append(names, quoteYAML(text))
	}
	return names, keys
}

// quoteYAML is s as a double-quoted YAML scalar, which JSON strings are.
func quoteYAML(s string) string { return string(splice.Quote(s)) }

func oneLine(s string) string { return printable(strings.Join(strings.Fields(s), " ")) }
