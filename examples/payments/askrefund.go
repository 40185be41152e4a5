package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// question is the id of the one input request that ask_refund makes.
const question = "confirm"

// askRefund asks the person at the client before it refunds: in another round of the same call on
// 2026-07-28, by elicitation before. The request state ties the answer to the arguments that were shown;
// it is no secret, since the client could as well claim the answer.
func askRefund(ctx context.Context, p *payments, c *call) (*answer, error) {
	sum := sha256.Sum256(c.raw)
	state := hex.EncodeToString(sum[:])
	response, ok := c.req.Params.InputResponses[question].(*mcp.ElicitResult)
	if !ok {
		return &answer{rounds: ask(c, state)}, nil
	}
	if c.req.Params.RequestState != state {
		return &answer{problem: "the answer belongs to another request"}, nil
	}
	if response.Action != "accept" {
		return &answer{problem: "the person said no"}, nil
	}
	return refund(ctx, p, c)
}

func ask(c *call, state string) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		RequestState: state,
		InputRequests: mcp.InputRequestMap{question: &mcp.ElicitParams{
			Mode:            "form",
			Message:         "Refund " + string(c.args["amount"]) + " of " + c.text("charge") + "?",
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{"why":{"type":"string"}}}`),
		}},
	}
}
