package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/examples/payments/faults"
	"github.com/undolog/undolog/examples/payments/ledger"
)

// firstReceipt is the first integer that a double cannot hold, so that whoever takes the results
// through floating point is found out.
const firstReceipt = 9007199254740993

// answer is what a tool says: the members of its structured result, or one of the other ends.
type answer struct {
	members []member
	problem string              // a result with isError
	rounds  *mcp.CallToolResult // another round is wanted
}

// member keeps the order of a result's members.
type member struct {
	name  string
	value json.RawMessage
}

func (a *answer) add(name string, value json.RawMessage) *answer {
	if value != nil {
		a.members = append(a.members, member{name, value})
	}
	return a
}

func (a *answer) addText(name, value string) *answer {
	raw, _ := encode(value) // a string always encodes
	return a.add(name, raw)
}

func (a *answer) addReceipt(e ledger.Entry) *answer {
	return a.add("receipt", strconv.AppendInt(nil, firstReceipt+e.Seq-1, 10))
}

// result turns the answer into what goes out, changed as rule wants.
func (a *answer) result(rule faults.Rule) (*mcp.CallToolResult, error) {
	if a.problem != "" {
		return toolError(a.problem), nil
	}
	if a.rounds != nil {
		return a.rounds, nil
	}
	object := a.object(rule.WrongTypes)
	res := &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: string(object)}},
		StructuredContent: object,
	}
	if rule.ResultBytes > 0 {
		res.Content = append(res.Content, &mcp.TextContent{Text: strings.Repeat("x", rule.ResultBytes)})
	}
	return res, nil
}

func (a *answer) object(wrong bool) json.RawMessage {
	out := []byte{'{'}
	for i, m := range a.members {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendQuote(out, m.name)
		out = append(out, ':')
		out = append(out, misspell(m, wrong)...)
	}
	return append(out, '}')
}

// misspell turns amounts and fractions into strings, and other integers into fractions, when wrong is
// set.
func misspell(m member, wrong bool) json.RawMessage {
	switch {
	case !wrong || !isNumber(m.value):
		return m.value
	case m.name == "amount" || bytes.ContainsAny(m.value, ".eE"):
		return json.RawMessage(strconv.Quote(string(m.value)))
	default:
		return slices.Concat(m.value, []byte(".0e0"))
	}
}

func isNumber(raw json.RawMessage) bool {
	return len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}
