package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/undolog/undolog/effect"
	"github.com/undolog/undolog/store"
)

func reportCommand() *cobra.Command {
	var since string
	var asJSON, policy bool
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Tell what a policy would have held back, and which tools have no rule",
		Long: `Tell what has been recorded, tool by tool: how often it was called, how often its calls came again and
were answered from the record, asked about, refused. For calls made under --shadow, when nothing is held back,
it tells what would have been done. Tools that write and that no rule of the policy names are listed, and with
--policy a policy to start from is printed, one rule for each tool that was seen.`,
		Example: `  undolog gateway --shadow --policy undolog.yaml -- npx -y @modelcontextprotocol/server-filesystem ~/notes
  undolog report --since 7d
  undolog report --policy > undolog.yaml`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := parseSince(since, time.Now())
			if err != nil {
				return err
			}
			return withLog(cmd, func(log *store.Log) error {
				r := newReport(log, tenantFlag(cmd), from)
				if err := r.read(cmd.Context()); err != nil {
					return err
				}
				switch {
				case policy:
					return r.policy(cmd.Context(), cmd.OutOrStdout())
				case asJSON:
					return writeJSON(cmd.OutOrStdout(), r.rows())
				}
				return r.print(cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "only what was recorded since then: a duration (24h, 7d) or a time")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON array")
	cmd.Flags().BoolVar(&policy, "policy", false, "print a policy to start from")
	return cmd
}

// reportRow is what was recorded of one tool.
type reportRow struct {
	Server   string         `json:"server"`
	Tool     string         `json:"tool"`
	Tier     effect.Tier    `json:"tier"`
	Calls    int            `json:"calls"`          // effects
	Answered int            `json:"replayed"`       // calls answered from the record
	Stopped  int            `json:"refused"`        // conflicts, denials, limits
	Asked    int            `json:"asked"`          // effects for which approval was asked
	InDoubt  int            `json:"inDoubt"`        // now
	Would    map[string]int `json:"would,omitzero"` // under --shadow: what would have been done instead
	NoRule   bool           `json:"noRule"`         // it writes, and no rule names it
}

type report struct {
	log    *store.Log
	tenant string
	since  time.Time
	tools  map[[2]string]*reportRow
}

func newReport(log *store.Log, tenant string, since time.Time) *report {
	return &report{log: log, tenant: tenant, since: since, tools: map[[2]string]*reportRow{}}
}

func (r *report) of(server, tool string) *reportRow {
	key := [2]string{server, tool}
	if r.tools[key] == nil {
		r.tools[key] = &reportRow{Server: server, Tool: tool}
	}
	return r.tools[key]
}

const reportPage = 1000

func (r *report) read(ctx context.Context) error {
	filter := &store.Filter{Tenant: r.tenant, Since: r.since, Limit: reportPage}
	for {
		list, err := r.log.List(ctx, filter)
		if err != nil {
			return err
		}
		for _, e := range list {
			r.addEffect(e)
		}
		if len(list) < reportPage {
			return r.readEvents(ctx)
		}
		filter.Before = list[len(list)-1].Seq
	}
}

// addEffect counts an effect; the newest of a tool, which comes first, says how it is governed now.
func (r *report) addEffect(e *effect.Record) {
	row := r.of(e.Server, e.Tool)
	if row.Calls == 0 {
		row.Tier = e.Tier
		row.NoRule = e.Tier != effect.TierRead && (!strings.HasPrefix(e.Source, "policy ") || strings.Contains(e.Source, "(no rule)"))
	}
	row.Calls++
	if e.Approval != nil {
		row.Asked++
	}
	if e.StateAt(r.log.Now()) == effect.StateInDoubt {
		row.InDoubt++
	}
}

func (r *report) readEvents(ctx context.Context) error {
	return r.log.EventsSince(ctx, r.tenant, r.since, func(page []effect.Event) time.Time {
		for i := range page {
			if !page[i].At.Before(r.since) && page[i].Tool != "" {
				r.addEvent(&page[i])
			}
		}
		return r.since
	})
}

func (r *report) addEvent(ev *effect.Event) {
	row := r.of(ev.Server, ev.Tool)
	switch ev.Kind {
	case effect.EventReplayed:
		row.Answered += times(ev)
	case effect.EventRefused:
		row.Stopped += times(ev)
	case effect.EventShadow:
		var would struct {
			Action string `json:"action"`
		}
		if json.Unmarshal(ev.Detail, &would) != nil || would.Action == "" {
			return
		}
		if row.Would == nil {
			row.Would = map[string]int{}
		}
		row.Would[would.Action]++
	}
}

// times is how often what an event tells of has happened.
func times(ev *effect.Event) int {
	var detail struct {
		More int `json:"more"`
	}
	if len(ev.Detail) == 0 || json.Unmarshal(ev.Detail, &detail) != nil {
		return 1
	}
	return max(1, detail.More)
}

func (r *report) rows() []*reportRow {
	rows := []*reportRow{}
	for _, row := range r.tools {
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b *reportRow) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Tool, b.Tool))
	})
	return rows
}

func (r *report) print(w io.Writer) error {
	rows := r.rows()
	if len(rows) == 0 {
		fmt.Fprintln(w, "nothing is recorded")
		return nil
	}
	cells := [][]string{{"SERVER", "TOOL", "TIER", "CALLS", "REPLAYED", "ASKED", "REFUSED", "IN DOUBT", "WOULD HAVE BEEN"}}
	for _, row := range rows {
		cells = append(cells, []string{
			clip(row.Server, 36), clip(row.Tool, 32), string(row.Tier), fmt.Sprint(row.Calls), fmt.Sprint(row.Answered),
			fmt.Sprint(row.Asked), fmt.Sprint(row.Stopped), fmt.Sprint(row.InDoubt), wouldWords(row.Would),
		})
	}
	if err := table(w, cells); err != nil {
		return err
	}
	return printUnruled(w, rows)
}

// wouldWords says what a policy would have done with calls that ran under --shadow.
func wouldWords(would map[string]int) string {
	words := map[string]string{
		string(effect.ActReplay): "replayed", string(effect.ActRequest): "asked", string(effect.ActAsk): "asked",
		string(effect.ActDenied): "denied", string(effect.ActLimit): "over a limit", string(effect.ActConflict): "refused as a conflict",
		string(effect.ActJoin): "joined", string(effect.ActInDoubt): "held as in doubt",
	}
	counts := map[string]int{}
	for action, n := range would {
		counts[cmp.Or(words[action], action)] += n
	}
	var parts []string
	for word, n := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", n, word))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func printUnruled(w io.Writer, rows []*reportRow) error {
	var unruled []string
	for _, row := range rows {
		if row.NoRule {
			unruled = append(unruled, "  "+printable(row.Server)+" / "+printable(row.Tool))
		}
	}
	if len(unruled) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\nTools that write and that no rule names (\"undolog report --policy\" prints rules to start from):\n%s\n", strings.Join(unruled, "\n"))
	return nil
}

// policy prints a policy to start from for the tools of every server that was called.
func (r *report) policy(ctx context.Context, w io.Writer) error {
	var servers []string
	for _, row := range r.rows() {
		if !slices.Contains(servers, row.Server) {
			servers = append(servers, row.Server)
		}
	}
	if len(servers) == 0 {
		return errors.New("nothing is recorded: run agents through \"undolog gateway\" first, or use \"undolog policy init\"")
	}
	var all []*serverTools
	for _, server := range servers {
		known, err := r.log.Tools(ctx, r.tenant, server)
		if err != nil {
			return err
		}
		name := withoutHash(server)
		at := slices.IndexFunc(all, func(st *serverTools) bool { return st.server == name })
		if at < 0 {
			at, all = len(all), append(all, &serverTools{server: name})
		}
		all[at].add(known)
	}
	_, err := w.Write(startingPolicies(all))
	return err
}

// add adds tools whose names are new.
func (st *serverTools) add(known []store.Tool) {
	for _, t := range known {
		tool := new(mcp.Tool)
		if json.Unmarshal(t.Definition, tool) != nil {
			continue
		}
		if !slices.ContainsFunc(st.tools, func(o *mcp.Tool) bool { return o.Name == tool.Name }) {
			st.tools = append(st.tools, tool)
		}
	}
}

var hashOfCommand = regexp.MustCompile(`-[0-9a-f]{8}$`)

// withoutHash is a server's own name, without what tells its command lines and URLs apart: a rule for it holds
// after an update too.
func withoutHash(server string) string { return hashOfCommand.ReplaceAllString(server, "") }
