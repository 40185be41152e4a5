// Command sidecar is a program that calls tools through a chain of its own, and leaves the effect log to
// an "undolog serve" in another process. See README.md.
//
//	undolog serve --http 127.0.0.1:8461
//	go run ./examples/sidecar --undolog http://127.0.0.1:8461
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/interceptors"
)

func main() {
	url := flag.String("undolog", "http://127.0.0.1:8461", "URL of the interceptor server")
	run := flag.String("run", "first", "the run whose steps these calls are")
	respond := flag.Bool("respond", true, "let the interceptor server answer a repeated call; without it such a call is blocked")
	flag.Parse()
	if err := work(context.Background(), *url, *run, *respond, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// work sends two letters, and the first of them again as an agent does that has lost its answer.
func work(ctx context.Context, url, run string, respond bool, out io.Writer) error {
	session, err := connect(ctx, url)
	if err != nil {
		return err
	}
	defer session.Close()
	c, err := newChain(session, respond)
	if err != nil {
		return err
	}
	office := &postOffice{}
	for _, to := range []string{"ada", "bob", "ada"} {
		reply := c.Do(ctx, letter(to, run), office.send)
		reply.Delivered(true)
		if reply.Error != nil {
			fmt.Fprintf(out, "%s: refused: %s\n", to, reply.Error)
			continue
		}
		fmt.Fprintf(out, "%s: %s\n", to, reply.Result)
	}
	fmt.Fprintf(out, "letters sent: %d\n", office.sent)
	return nil
}

// connect opens a session with the interceptor server.
func connect(ctx context.Context, url string) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "sidecar-example", Version: "1"}, nil)
	if err := interceptors.AddClient(client); err != nil {
		return nil, err
	}
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true}, nil)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	return session, nil
}

// newChain makes a chain of the one remote host. respond lets it answer a repeated call from its record;
// without that a repeated call is blocked. The effect mutator is required: no call goes out unrecorded
// when the server is gone.
func newChain(session *mcp.ClientSession, respond bool) (*chain.Chain, error) {
	c, err := chain.New(nil)
	if err != nil {
		return nil, err
	}
	undolog := chain.Remote("undolog", session, &chain.RemoteOptions{Respond: respond})
	err = c.Use(undolog, &chain.HostPolicy{
		Required:  map[string]interceptors.Type{"undolog/effect": interceptors.TypeMutation},
		Overrides: map[string]chain.Override{"undolog/effect": {Config: json.RawMessage(`{"server":"post-office"}`)}},
	})
	return c, err
}

// letter is one tool call. Its run says which calls belong together: the same call of the same run is
// the same letter, another run sends another.
func letter(to, run string) *chain.Request {
	params := fmt.Sprintf(`{"name":"send_letter","arguments":{"to":%q},"_meta":{"dev.undolog/run":%q}}`, to, run)
	return &chain.Request{
		Event:     "tools/call",
		Params:    json.RawMessage(params),
		Principal: &interceptors.Principal{Type: "service", ID: "sidecar-example"},
	}
}

// postOffice is the target, which cannot take a letter back.
type postOffice struct{ sent int }

func (p *postOffice) send(_ context.Context, _ json.RawMessage) chain.Answer {
	p.sent++
	text := fmt.Sprintf(`{"content":[{"type":"text","text":"letter %d is on its way"}]}`, p.sent)
	return chain.Answer{Kind: chain.Answered, Result: json.RawMessage(text)}
}
