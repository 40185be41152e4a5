package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
)

func policyExplainCommand() *cobra.Command {
	var e explain
	cmd := &cobra.Command{
		Use:   "explain CALL.json",
		Short: "Say which rule decides on a call, and why",
		Long: `Say which rule of a policy decides on a call, why the rules before it do not, and what then holds. Nothing is
called and nothing is recorded.

CALL.json ("-" for standard input) holds the params of a tools/call, {"name": …, "arguments": …, "_meta": …}, a
whole request, or {"server": …, "principal": …, "tenant": …, "run": …, "annotations": …, "params": …}; flags
go before what it says. What annotations a tool has is not looked up: the file can give them.`,
		Example: `  undolog policy explain --server payments --principal agent:bot call.json
  echo '{"name":"charge","arguments":{"amount":10}}' | undolog policy explain --server payments -`,
		Args: exactArgs(1, "a file with the call"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.run(cmd, args[0])
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&e.policy, "policy", "undolog.yaml", "policy file")
	flags.StringVar(&e.server, "server", "", "server that the tool belongs to; rules that name a server match no call without one")
	flags.StringVar(&e.principal, "principal", "", "who calls")
	flags.StringVar(&e.runHandle, "run", "", "run that the call belongs to")
	flags.BoolVar(&e.trusted, "trust", true, "whether the server's annotations are believed where the policy does not say; a gateway believes the server that it starts")
	flags.BoolVar(&e.asJSON, "json", false, "print one JSON object")
	return cmd
}

// explain is one run of the command.
type explain struct {
	policy, server, principal, runHandle string
	trusted, asJSON                      bool
}

func (e *explain) run(cmd *cobra.Command, path string) error {
	policy, err := loadPolicy(e.policy)
	if err != nil {
		return err
	}
	var data []byte
	if path == "-" {
		data, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), 16<<20))
	} else {
		data, err = readSettings(path)
	}
	if err != nil {
		return fmt.Errorf("read call: %w", err)
	}
	call, err := e.call(cmd, data)
	if err != nil {
		return fmt.Errorf("read call of %s: %w", path, err)
	}
	x := policy.Explain(call, e.trusted)
	if e.asJSON {
		return writeJSON(cmd.OutOrStdout(), explanationToJSON(policy, x))
	}
	return writeExplanation(cmd.OutOrStdout(), call, x)
}

// explainedCall is the file with the call, in each of its forms.
type explainedCall struct {
	Server      string          `json:"server"`
	Principal   string          `json:"principal"`
	Tenant      string          `json:"tenant"`
	Run         string          `json:"run"`
	Annotations *hintsJSON      `json:"annotations"`
	Params      json.RawMessage `json:"params"`
}

type hintsJSON struct {
	ReadOnly    bool  `json:"readOnlyHint"`
	Idempotent  bool  `json:"idempotentHint"`
	Destructive *bool `json:"destructiveHint"`
	OpenWorld   *bool `json:"openWorldHint"`
}

type callParams struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Meta      struct {
		Run string `json:"dev.undolog/run"`
		Key string `json:"dev.undolog/idempotency-key"`
	} `json:"_meta"`
}

func (e *explain) call(cmd *cobra.Command, data []byte) (*effect.Call, error) {
	var file explainedCall
	if err := jsonv2.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	if file.Params == nil {
		file.Params = data
	}
	var params callParams
	if err := jsonv2.Unmarshal(file.Params, &params); err != nil {
		return nil, err
	}
	if params.Name == "" {
		return nil, errors.New(`it has no name: want {"name": TOOL, "arguments": {…}}`)
	}
	tenant := tenantFlag(cmd)
	if !cmd.Flags().Changed("tenant") {
		tenant = cmp.Or(file.Tenant, tenant)
	}
	return &effect.Call{
		Tenant: tenant, Server: cmp.Or(e.server, file.Server), Principal: cmp.Or(e.principal, file.Principal),
		Tool: params.Name, Arguments: params.Arguments, Run: cmp.Or(e.runHandle, params.Meta.Run, file.Run), Key: params.Meta.Key,
		Annotations: file.Annotations.annotations(),
	}, nil
}

func (h *hintsJSON) annotations() *effect.Annotations {
	if h == nil {
		return nil
	}
	return &effect.Annotations{
		ReadOnly: h.ReadOnly, Idempotent: h.Idempotent,
		Harmless: h.Destructive != nil && !*h.Destructive, Closed: h.OpenWorld != nil && !*h.OpenWorld,
	}
}

func writeExplanation(w io.Writer, call *effect.Call, x *effect.Explanation) error {
	var rows [][]string
	for _, r := range x.Rules {
		mark := "no"
		if r.Takes {
			mark = "yes"
		}
		rows = append(rows, []string{fmt.Sprintf("line %d", r.Line), mark, printable(r.Why)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
	}
	if x.Contract == nil {
		_, err := fmt.Fprintf(w, "The call is refused: %s.\n", printable(x.Refusal))
		return err
	}
	fmt.Fprintf(w, "Decided by %s.\n\n", x.Contract.Source)
	return table(w, contractInWords(call, x.Contract))
}

// contractInWords is what holds for a call, a row for each thing.
func contractInWords(call *effect.Call, c *effect.Contract) [][]string {
	rows := [][]string{{"tier", string(c.Tier)}, {"before it runs", asksInWords(c)}}
	for i := range c.Limits {
		rows = append(rows, []string{"limit", limitInWords(&c.Limits[i])})
	}
	rows = append(rows, []string{"recognised by", identityInWords(call, c)})
	if c.Tier != effect.TierRead {
		rows = append(rows, []string{"when it comes again", repeatInWords(c)}, []string{"when its outcome is lost", lostInWords(c)})
	}
	rows = append(rows, []string{"an answered error", errorInWords(c)}, []string{"answer awaited for", c.Timeout.String()})
	for _, more := range []struct {
		name  string
		shown string
	}{
		{"kept nowhere", strings.Join(c.Redact, ", ")}, {"kept nowhere of the result", strings.Join(c.RedactResult, ", ")},
		{"our key goes to", injectInWords(c.Inject)},
	} {
		if more.shown != "" {
			rows = append(rows, []string{more.name, more.shown})
		}
	}
	return rows
}

func asksInWords(c *effect.Contract) string {
	if c.Deny != "" {
		return "it is denied: " + printable(c.Deny)
	}
	a := c.Asking
	people := "any user"
	if len(a.Approvers) > 0 {
		people = strings.Join(a.Approvers, ", ")
	}
	if a.Host {
		people += ", or the user of the agent's host"
	}
	how := fmt.Sprintf("%d of %s, within %s; to be used within %s", max(a.Quorum, 1), people, a.DecideFor, a.UseFor)
	switch {
	case c.Approve:
		return "approval by " + how
	case !c.Definition.IsZero():
		return "nobody is asked while the tool's definition is " + c.Definition.String() + "; else approval by " + how
	}
	return "nobody is asked"
}

func limitInWords(l *effect.Limit) string {
	unit := "calls"
	if l.Units != nil {
		unit = "of " + l.Units.Text()
	}
	within := ""
	if l.Within > 0 {
		within = " within " + l.Within.String()
	}
	return fmt.Sprintf("%s: %g %s%s, per %s", l.Name, float64(l.Max)/effect.Unit, unit, within, l.Per)
}

func identityInWords(call *effect.Call, c *effect.Contract) string {
	id, err := c.Identify(call)
	if err != nil {
		return "nothing: it is refused: " + printable(err.Error())
	}
	arguments := "all arguments"
	switch {
	case len(c.Identity) > 0:
		arguments = strings.Join(c.Identity, ", ")
	case len(c.Volatile) > 0:
		arguments += " but " + strings.Join(c.Volatile, ", ")
	}
	switch id.Rule {
	case effect.RuleKey:
		return "its key " + printable(id.Scope)
	case effect.RuleRun:
		return "its run " + printable(id.Scope) + ", server, tool and " + arguments
	case effect.RuleWindow:
		return "who calls, server, tool and " + arguments + ", for " + c.Window.String() + " after it was settled"
	}
	return "nothing: nothing says who calls"
}

func repeatInWords(c *effect.Contract) string {
	return fmt.Sprintf("after its answer arrived: %s; after an answered error: %s", c.Repeat, c.RepeatError)
}

func lostInWords(c *effect.Contract) string {
	switch {
	case c.Tier == effect.TierIdempotent:
		return "it runs again"
	case c.Probe != nil:
		return "it is looked up with " + c.Probe.Tool
	}
	return "it is in doubt until a person settles it"
}

func errorInWords(c *effect.Contract) string {
	if c.OnToolError == effect.StateFailed {
		return "means that nothing was applied"
	}
	return "is the record: something may have been applied"
}

func injectInWords(i effect.Inject) string {
	if i.Into == effect.InjectNowhere {
		return ""
	}
	return string(i.Into) + " " + i.Name
}
