package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/examples/payments/ledger"
)

// tool is one of the server's tools.
type tool struct {
	name, description string
	params            []param
	hints             mcp.ToolAnnotations
	run               func(context.Context, *payments, *call) (*answer, error)
}

// param is one top-level argument.
type param struct {
	name, kind, description string
	optional                bool
}

// accepts reports whether a value is of the parameter's kind. Amounts must be above zero.
func (p param) accepts(raw json.RawMessage) bool {
	if p.kind == "number" {
		f, err := strconv.ParseFloat(string(raw), 64)
		return err == nil && isNumber(raw) && f > 0
	}
	return len(raw) > 0 && raw[0] == '"'
}

var (
	account   = param{name: "account", kind: "string", description: "The account's name"}
	amount    = param{name: "amount", kind: "number", description: "In cents, above zero"}
	charged   = param{name: "charge", kind: "string", description: "A charge's id, such as ch_1"}
	reference = param{name: "reference", kind: "string", description: "Printed on the statement", optional: true}
)

func tools() []tool {
	yes, no := new(true), new(false)
	write := mcp.ToolAnnotations{DestructiveHint: no, OpenWorldHint: yes}
	destroy := mcp.ToolAnnotations{DestructiveHint: yes, OpenWorldHint: yes}
	read := mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no}
	same := mcp.ToolAnnotations{IdempotentHint: true, DestructiveHint: yes, OpenWorldHint: no}
	return []tool{
		{"charge", "Charge an account.", []param{account, amount, reference}, write, charge},
		{"refund", "Take back a charge, in whole or in part.", []param{charged, amount}, destroy, refund},
		{"ask_refund", "Take back a charge after the person has agreed.", []param{charged, amount}, destroy, askRefund},
		{"get_charge", "Look a charge up.", []param{charged}, read, getCharge},
		{"list_charges", "List all charges.", nil, read, listCharges},
		{"send_receipt", "Mail a charge's receipt.",
			[]param{{name: "to", kind: "string", description: "A mail address"}, charged}, write, sendReceipt},
		{"append_note", "Add a line to the notebook; the same line may be added again.",
			[]param{{name: "text", kind: "string", description: "The line"}}, write, appendNote},
		{"toggle", "Flip the switch that holds all payments.", nil, destroy, toggle},
		{"set_limit", "Set an account's limit.",
			[]param{account, {name: "limit", kind: "number", description: "In cents"}}, same, setLimit},
	}
}

func (t tool) definition() *mcp.Tool {
	hints := t.hints
	return &mcp.Tool{Name: t.name, Description: t.description, Annotations: &hints, InputSchema: t.schema()}
}

func (t tool) schema() json.RawMessage {
	type property struct {
		Type        string `json:"type"`
		Description string `json:"description"`
	}
	properties, required := map[string]property{}, []string{}
	for _, p := range t.params {
		properties[p.name] = property{p.kind, p.description}
		if !p.optional {
			required = append(required, p.name)
		}
	}
	raw, err := json.Marshal(struct {
		Type       string              `json:"type"`
		Properties map[string]property `json:"properties"`
		Required   []string            `json:"required"`
	}{"object", properties, required})
	if err != nil {
		panic(fmt.Sprintf("schema of %s: %v", t.name, err))
	}
	return raw
}

func charge(ctx context.Context, p *payments, c *call) (*answer, error) {
	if err := c.progress(ctx, 1, 2); err != nil {
		return nil, err
	}
	e, err := c.record(p, "charge", "ch")
	if err != nil {
		return nil, err
	}
	p.updated(ctx, chargesURI)
	if err := c.progress(ctx, 2, 2); err != nil {
		return nil, err
	}
	return describe(e), nil
}

// describe is a charge as charge and get_charge answer it.
func describe(e ledger.Entry) *answer {
	var args map[string]json.RawMessage
	_ = json.Unmarshal(e.Arguments, &args) // an object, or it had not been recorded
	a := (&answer{}).addText("charge", e.ID)
	for _, name := range []string{"account", "amount", "reference"} {
		a.add(name, args[name])
	}
	return a.addReceipt(e)
}

func refund(_ context.Context, p *payments, c *call) (*answer, error) {
	_, ok, err := p.find(c.text("charge"))
	if err != nil {
		return nil, err
	}
	if !ok {
		return &answer{problem: "there is no charge " + c.text("charge")}, nil
	}
	e, err := c.record(p, "refund", "re")
	if err != nil {
		return nil, err
	}
	return (&answer{}).addText("refund", e.ID).add("charge", c.args["charge"]).add("amount", c.args["amount"]).addReceipt(e), nil
}

func getCharge(_ context.Context, p *payments, c *call) (*answer, error) {
	e, ok, err := p.find(c.text("charge"))
	if err != nil {
		return nil, err
	}
	if !ok {
		return &answer{problem: "there is no charge " + c.text("charge")}, nil
	}
	return describe(e), nil
}

func listCharges(_ context.Context, p *payments, _ *call) (*answer, error) {
	list, err := p.list()
	if err != nil {
		return nil, err
	}
	return (&answer{}).add("charges", list), nil
}

func sendReceipt(_ context.Context, p *payments, c *call) (*answer, error) {
	e, err := c.record(p, "send_receipt", "mail")
	if err != nil {
		return nil, err
	}
	return (&answer{}).addText("mail", e.ID).add("to", c.args["to"]), nil
}

func appendNote(_ context.Context, p *payments, c *call) (*answer, error) {
	e, err := c.record(p, "append_note", "note")
	if err != nil {
		return nil, err
	}
	return (&answer{}).addText("note", e.ID).add("text", c.args["text"]), nil
}

func toggle(_ context.Context, p *payments, c *call) (*answer, error) {
	if _, err := c.record(p, "toggle", ""); err != nil {
		return nil, err
	}
	n, err := p.book.Count("toggle")
	if err != nil {
		return nil, err
	}
	return (&answer{}).add("on", strconv.AppendBool(nil, n%2 == 1)), nil
}

func setLimit(_ context.Context, p *payments, c *call) (*answer, error) {
	if _, err := c.record(p, "set_limit", ""); err != nil {
		return nil, err
	}
	return (&answer{}).add("account", c.args["account"]).add("limit", c.args["limit"]), nil
}
