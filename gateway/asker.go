package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"time"
)

// AskerOptions configures NewAsker. Dial is required.
type AskerOptions struct {
	// Dial, Target, Label and Name are those of Options.
	Dial                func(ctx context.Context, agent *AgentInfo) (Conn, error)
	Target, Label, Name string
	// Version is what the client says that it is of the program undolog. Defaults to "0".
	Version string
	// Logger defaults to silence.
	Logger *slog.Logger
}

// Asker asks an upstream on a connection of its own, on behalf of no agent: what is asked passes no chain. It
// opens the connection when it is first asked, and again when that has died. It is safe for concurrent use.
type Asker struct {
	core    core
	version string
	meta    json.RawMessage // what a stateless upstream requires; nil: a session was begun
}

// NewAsker returns an Asker, which Close ends.
func NewAsker(opts *AskerOptions) *Asker {
	g := &Gateway{logger: opts.Logger, opts: Options{
		Dial: opts.Dial, Target: opts.Target, Label: opts.Label, Name: opts.Name, MaxResult: defaultMaxResult, Now: time.Now,
	}}
	if g.logger == nil {
		g.logger = slog.New(slog.DiscardHandler)
	}
	a := &Asker{version: opts.Version}
	if a.version == "" {
		a.version = "0"
	}
	a.core.init(g, AgentInfo{})
	a.core.newID = func(n uint64) json.RawMessage { return strconv.AppendUint(nil, n, 10) }
	link := a.core.link
	link.opened = true // so that the first connection is greeted too
	link.revive = a.greet
	link.receive = a.receive
	return a
}

// Server is what the upstream is called: see Options.Name.
func (a *Asker) Server(ctx context.Context) (string, error) {
	if _, err := a.core.link.open(ctx); err != nil {
		return "", err
	}
	return a.core.peer().Server, nil
}

// Ask sends a request and returns the result member of its answer. An answer that is an error is an error.
func (a *Asker) Ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	conn, err := a.core.link.open(ctx)
	if err != nil {
		return nil, err
	}
	return a.core.askOn(ctx, conn, method, withMeta(params, a.meta))
}

// Close ends the connection, and what is asked on it.
func (a *Asker) Close() { a.core.link.close() }

// greet begins a session; with an upstream that has none it finds out its name.
func (a *Asker) greet(ctx context.Context, conn Conn) error {
	client := fmt.Appendf(nil, `{"name":"undolog","version":%q}`, a.version)
	hello := fmt.Appendf(nil, `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":%s}`, client)
	answer, err := a.core.answerOn(ctx, conn, methodInitialize, hello)
	switch {
	case err != nil:
		return err
	case answer.Result != nil:
		a.meta = nil
		a.core.learn(methodInitialize, answer.Result)
		_, err = conn.Write(ctx, NewNotification(methodInitialized, nil))
		return err
	}
	a.meta = fmt.Appendf(nil, `{%q:%q,%q:%s,%q:{}}`, metaProtocol, statelessProtocol, metaClientInfo, client, metaCapabilities)
	result, err := a.core.askOn(ctx, conn, methodDiscover, withMeta(json.RawMessage("{}"), a.meta))
	if err != nil {
		return err
	}
	a.core.learn(methodDiscover, result)
	return nil
}

// receive answers what the upstream asks: nobody is there.
func (a *Asker) receive(m *Message) {
	switch {
	case !m.IsRequest():
	case m.Method == "ping":
		a.core.link.notify(NewResult(m.ID, json.RawMessage("{}")))
	default:
		a.core.link.notify(NewError(m.ID, codeMethodNotFound, "no agent can be asked here", nil))
	}
}
