package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/examples/payments/ledger"
)

const chargesURI = "payments://charges"

func (p *payments) addResources(server *mcp.Server) {
	server.AddResource(&mcp.Resource{
		URI: chargesURI, Name: "charges", Description: "All charges, oldest first", MIMEType: "application/json",
	}, p.readCharges)
	server.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: chargesURI + "/{id}", Name: "charge", Description: "One charge", MIMEType: "application/json",
	}, p.readCharge)
	server.AddPrompt(&mcp.Prompt{
		Name: "apology", Description: "A letter about a charge that was made by mistake",
		Arguments: []*mcp.PromptArgument{{Name: "charge", Description: "The charge's id", Required: true}},
	}, apology)
}

// list returns all charges as a JSON array.
func (p *payments) list() (json.RawMessage, error) {
	entries, err := p.book.Entries()
	if err != nil {
		return nil, err
	}
	list := []json.RawMessage{}
	for _, e := range ledger.Of(entries, "charge") {
		list = append(list, describe(e).object(false))
	}
	return encode(list)
}

func (p *payments) readCharges(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	list, err := p.list()
	if err != nil {
		return nil, err
	}
	return contents(req.Params.URI, list), nil
}

func (p *payments) readCharge(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	e, ok, err := p.find(strings.TrimPrefix(req.Params.URI, chargesURI+"/"))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	return contents(req.Params.URI, describe(e).object(false)), nil
}

func contents(uri string, data json.RawMessage) *mcp.ReadResourceResult {
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
		{URI: uri, MIMEType: "application/json", Text: string(data)},
	}}
}

func apology(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	text := "Write a short apology for the charge " + req.Params.Arguments["charge"] + "."
	return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{
		{Role: "user", Content: &mcp.TextContent{Text: text}},
	}}, nil
}

// complete offers the ids of charges.
func (p *payments) complete(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	entries, err := p.book.Entries()
	if err != nil {
		return nil, err
	}
	values := []string{}
	for _, e := range ledger.Of(entries, "charge") {
		if strings.HasPrefix(e.ID, req.Params.Argument.Value) {
			values = append(values, e.ID)
		}
	}
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{
		Values: values[:min(len(values), 100)], Total: len(values), HasMore: len(values) > 100,
	}}, nil
}
