package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/internal/splice"
)

// The methods by which an upstream tells how a task ended. What it tells then is the answer of the request
// that began the task, and passes the response phase that the request's first answer, the handle, has
// passed.
const (
	methodTaskGet    = "tasks/get"           // from 2026-07-28 on with the result inside
	methodTaskResult = "tasks/result"        // 2025-11-25: the result itself
	methodTaskNote   = "notifications/tasks" // from 2026-07-28 on
	methodTaskUpdate = "tasks/update"        // the agent's answers to what a task has asked
)

func tellsOfTask(method string) bool { return method == methodTaskGet || method == methodTaskResult }

// maxTasks bounds what is remembered. A task that was forgotten, or begun by another process, is judged as
// a tools/call of which no more is known.
const maxTasks = 10_000

// tasks remembers to which exchange a task belongs, and what it has asked.
type tasks struct {
	mu    sync.Mutex
	known map[taskKey]task
	order []taskKey // as they came
}

type task struct {
	exchange *chain.Exchange
	asked    map[string]string // the event of each question, by its key; nil: not known
}

// taskKey tells tasks apart: an id alone is the agent's to choose.
type taskKey struct{ tenant, principal, id string }

func (t *tasks) put(k taskKey, v task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = make(map[taskKey]task)
	}
	if _, known := t.known[k]; !known {
		t.order = append(t.order, k)
	}
	t.known[k] = v
	if len(t.order) > maxTasks {
		delete(t.known, t.order[0])
		t.order = t.order[1:]
	}
}

func (t *tasks) get(k taskKey) task {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[k]
}

func (c *core) taskKey(id string) taskKey { return taskKey{c.info.Tenant, c.info.Principal, id} }

// noteTask remembers the exchange whose answer is the handle of a task, and has the task followed to its end.
// m is the request as the agent sent it.
func (c *core) noteTask(x *chain.Exchange, m *Message, result json.RawMessage) {
	if x == nil || !bytes.Contains(result, []byte(`"taskId"`)) {
		return
	}
	if f := c.newFollower(x, result, requestMeta(m.Params)); f != nil {
		f.start(c.opts.Now())
	}
}

// task returns what is remembered of a task.
func (c *core) task(id json.RawMessage) task {
	t := c.tasks.get(c.taskKey(unquote(id)))
	if t.exchange == nil {
		t.exchange = &chain.Exchange{Request: c.request(&Message{Method: methodToolsCall})}
	}
	return t
}

// resume takes the result of a task through the response phase of the request that began it.
func (c *core) resume(ctx context.Context, id, result json.RawMessage) *chain.Reply {
	return c.opts.Chain.Resume(ctx, c.task(id).exchange, chain.Answer{Kind: chain.Answered, Result: result})
}

// taskAnswer makes what the agent is told of a task of what the upstream answered. The reply is nil where
// the chain was not asked.
func (c *core) taskAnswer(ctx context.Context, m, answer *Message) (*Message, *chain.Reply) {
	id, result := splice.Get(m.Params, "taskId"), answer.Result
	if m.Method == methodTaskGet {
		if object := splice.Get(result, "error"); object != nil && c.opts.ScrubErrors {
			answer = answer.WithResult(replaced(result, scrub(object), "error"))
		}
		if questions := splice.Get(result, "inputRequests"); questions != nil {
			return c.taskAsks(ctx, id, questions, answer)
		}
		if result = splice.Get(result, "result"); result == nil {
			return answer, nil
		}
	}
	reply := c.resume(ctx, id, result)
	switch {
	case reply.Error != nil:
		return NewErrorObject(answer.ID, reply.Error), reply
	case bytes.Equal(reply.Result, result):
		return answer, reply
	case m.Method == methodTaskGet:
		return answer.WithResult(replaced(answer.Result, reply.Result, "result")), reply
	}
	return answer.WithResult(reply.Result), reply
}

// taskAsks takes what a task asks of the agent through the chain, and remembers it for the answers.
func (c *core) taskAsks(ctx context.Context, id, questions json.RawMessage, answer *Message) (*Message, *chain.Reply) {
	t := c.task(id)
	changed, asked, stopped := c.opts.Chain.Ask(ctx, t.exchange, questions)
	if stopped != nil {
		return NewErrorObject(answer.ID, stopped.Error), stopped
	}
	c.tasks.put(c.taskKey(unquote(id)), task{t.exchange, asked})
	if bytes.Equal(changed, questions) {
		return answer, nil
	}
	return answer.WithResult(replaced(answer.Result, changed, "inputRequests")), nil
}

// taskTold takes the agent's answers to a task through the chain: m as it is to go on, or the refusal.
func (c *core) taskTold(ctx context.Context, m *Message) (out, refusal *Message) {
	answers := splice.Get(m.Params, "inputResponses")
	if answers == nil {
		return m, nil
	}
	t := c.task(splice.Get(m.Params, "taskId"))
	changed, stopped := c.opts.Chain.Tell(ctx, t.exchange, t.asked, answers)
	switch {
	case stopped != nil:
		return nil, NewErrorObject(m.ID, stopped.Error)
	case bytes.Equal(changed, answers):
		return m, nil
	}
	return m.WithParams(replaced(m.Params, changed, "inputResponses")), nil
}

// taskNote makes what the agent is told of a task of a notification with its result; nil when an
// interceptor has stopped it.
func (c *core) taskNote(ctx context.Context, m *Message) (*Message, *chain.Reply) {
	result := splice.Get(m.Params, "result")
	reply := c.resume(ctx, splice.Get(m.Params, "taskId"), result)
	switch {
	case reply.Error != nil:
		c.logger.WarnContext(ctx, "notification of a task's end dropped", slog.String("reason", reply.Outcome.Reason))
		return nil, reply
	case bytes.Equal(reply.Result, result):
		return m, reply
	}
	return m.WithParams(replaced(m.Params, reply.Result, "result")), reply
}

// replaced puts a value where one is known to be.
func replaced(object, value json.RawMessage, name string) json.RawMessage {
	out, err := splice.Set(object, value, name)
	if err != nil {
		return object
	}
	return out
}
