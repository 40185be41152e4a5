package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/internal/splice"
)

// waitState is what one governed request knows of its waiting for people, over all its tries.
type waitState struct {
	until    time.Time       // when holding it ends; zero: it was not held yet
	asked    map[string]bool // the pauses that the agent's user was asked about
	declined bool            // that user wants nothing to do with it
	steps    int             // progress told
}

// waiter is the agent's end of a request that is held.
type waiter struct {
	modern  bool             // of the generation that is asked inside answers
	can     func() abilities // of its client
	tell    func(*Message)   // sends what belongs to the request
	elicit  func(params json.RawMessage) (answers <-chan *Message, forget func())
	left    <-chan struct{} // closed when nobody waits for the answer any more; nil: the request's context tells
	ending  <-chan struct{} // closed when nothing is held any more, because this end of the gateway is to end
	handle  string          // by which the agent goes on with a pause
	reply   *elicited       // what its user has answered meanwhile
	foreign bool            // the request goes on with a round of the upstream's
}

// pause is asked about a request that waits for people: true tries it again.
//
// An agent of the generation that is asked inside answers gets the question at once, since its user sees the
// page only then; when it comes back it is held, since people have just begun to look. Every other agent is
// held, and asked meanwhile if it can be.
func (c *core) pause(ctx context.Context, g *governed, x *chain.Exchange, p *chain.Pause) (again bool) {
	g.turn.leave() // others need not wait behind it
	if reply := g.agent.reply; reply != nil {
		g.agent.reply = nil
		shown := *p
		shown.Handle = g.agent.handle // of the question that was answered: what it was about may have been edited since
		if c.heed(ctx, g, x, &shown, reply) {
			return true
		}
	}
	asksInside := g.agent.asksInside(p) || g.agent.modern && c.opts.RequireElicitation
	if g.wait.declined || asksInside && g.agent.handle == "" {
		return false
	}
	return c.hold(ctx, g, x, p)
}

// asksInside reports whether the answer to the request can ask its user.
func (w *waiter) asksInside(p *chain.Pause) bool {
	return w.modern && !w.foreign && p.Handle != "" && w.can().modeFor(p) != ""
}

// hold waits until p is decided. It is false when the request gives up first: its time is over, its agent has
// gone or has declined, or this end is to end; or as many are held as may be.
func (c *core) hold(ctx context.Context, g *governed, x *chain.Exchange, p *chain.Pause) (again bool) {
	if c.opts.Hold < 0 || p.WaitMs <= 0 {
		return false
	}
	defer c.held.Add(-1)
	if c.held.Add(1) > int64(c.opts.MaxHeld) {
		c.logger.WarnContext(ctx, "call not held: too many are", slog.Int("held", c.opts.MaxHeld))
		return false
	}
	if g.wait.until.IsZero() {
		g.wait.until = time.Now().Add(c.opts.Hold)
	}
	ctx, cancel := context.WithDeadline(ctx, g.wait.until)
	defer cancel()
	decided := make(chan error, 1)
	awaited := make(chan struct{})
	go func() {
		defer close(awaited)
		decided <- c.opts.Chain.Await(ctx, x, p)
	}()
	defer func() {
		cancel()
		<-awaited
	}()
	answers, done := c.askWhileHeld(g, p)
	defer func() { done(again) }()
	tick := time.NewTicker(c.opts.HoldProgress)
	defer tick.Stop()
	for g.tellProgress(p); ; {
		select {
		case err := <-decided:
			return err == nil && !g.isOver()
		case m := <-answers:
			answers = nil
			if e := readElicited(m.Result); c.heed(ctx, g, x, p, e) {
				return !g.isOver()
			}
			if g.wait.declined {
				return false
			}
		case <-tick.C:
			g.tellProgress(p)
		case <-ctx.Done():
			return false
		case <-g.agent.left:
			return false
		case <-g.agent.ending:
			return false
		}
	}
}

// isOver reports whether nobody takes the answer any more, or nothing new is to begin.
func (g *governed) isOver() bool {
	select {
	case <-g.agent.left:
		return true
	case <-g.agent.ending:
		return true
	default:
		return false
	}
}

// askWhileHeld asks the agent's user about p, once, if the agent's session can be asked. done ends the asking;
// it is told whether p was decided.
func (c *core) askWhileHeld(g *governed, p *chain.Pause) (answers <-chan *Message, done func(decided bool)) {
	mode := g.agent.can().modeFor(p)
	if g.agent.elicit == nil || g.agent.modern || mode == "" || g.wait.asked[p.ID] {
		return nil, func(bool) {}
	}
	if g.wait.asked == nil {
		g.wait.asked = map[string]bool{}
	}
	g.wait.asked[p.ID] = true
	answers, forget := g.agent.elicit(elicitParams(p, mode, true))
	return answers, func(decided bool) {
		forget()
		if decided && mode == askByURL {
			params := append(appendString([]byte(`{"elicitationId":`), p.ID), '}')
			g.agent.tell(NewNotification(methodElicitComplete, params))
		}
	}
}

// tellProgress tells the agent that its request waits. The steps are small, so that what the upstream tells
// later is more.
func (g *governed) tellProgress(p *chain.Pause) {
	token := progressTokenOf(g.m)
	if token == nil {
		return
	}
	text := "waiting for a person's approval"
	if p.URL != "" {
		text += ": " + p.URL
	}
	g.wait.steps++
	b := append([]byte(`{"progressToken":`), token...)
	b = strconv.AppendFloat(append(b, `,"progress":`...), float64(g.wait.steps)/1e6, 'f', 6, 64)
	b = appendString(append(b, `,"message":`...), text)
	g.agent.tell(NewNotification(methodProgress, append(b, '}')))
}

// progressTokenOf is the token of a request; nil when it wants no progress.
func progressTokenOf(m *Message) json.RawMessage {
	token := splice.Get(m.Params, "_meta", "progressToken")
	if kind := splice.Kind(token); kind == 0 || kind == 'n' {
		return nil
	}
	return token
}
