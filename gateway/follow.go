package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/undolog/undolog/chain"
	"github.com/undolog/undolog/internal/splice"
)

// follower follows one task of the upstream to its end, whether or not its agent asks.
type follower struct {
	core     *core
	id       string
	exchange *chain.Exchange // whose answer was the task's handle
	meta     json.RawMessage // what a stateless upstream requires of a request; nil: nothing
	modern   bool            // tasks/get tells the result too, as from 2026-07-28 on
	pause    time.Duration   // between two polls
	ttl      time.Duration   // of the task; zero: not said
	refusals int             // answers in a row that said nothing of the task
}

const (
	defaultPoll = 5 * time.Second
	leastPoll   = 50 * time.Millisecond
	mostPoll    = time.Minute
	// longestTask is how long a task is followed that has no time to live.
	longestTask = 24 * time.Hour
	// mostRefusals is how often an upstream may answer with an error that says nothing of the task.
	mostRefusals = 8
	// taskPatience bounds one poll. An answer of tasks/result may take as long as its task.
	taskPatience = 30 * time.Second
)

// newFollower reads the handle of a task; nil when the answer is none.
func (c *core) newFollower(x *chain.Exchange, result, meta json.RawMessage) *follower {
	f := &follower{core: c, exchange: x, meta: meta, pause: defaultPoll}
	handle := splice.Get(result, "task") // 2025-11-25
	if unquote(splice.Get(result, "resultType")) == "task" {
		handle, f.modern = result, true
	}
	if f.id = unquote(splice.Get(handle, "taskId")); f.id == "" {
		return nil
	}
	f.learn(handle)
	return f
}

// learn takes from a task how often it wants to be asked, and how long it is kept.
func (f *follower) learn(task json.RawMessage) {
	if d := milliseconds(task, "pollIntervalMs", "pollInterval"); d > 0 {
		f.pause = min(max(d, leastPoll), mostPoll)
	}
	if d := milliseconds(task, "ttlMs", "ttl"); d > 0 {
		f.ttl = d
	}
}

func milliseconds(object json.RawMessage, names ...string) time.Duration {
	for _, name := range names {
		if ms, err := strconv.ParseFloat(string(splice.Get(object, name)), 64); err == nil && ms > 0 && ms < 1e12 {
			return time.Duration(ms * float64(time.Millisecond))
		}
	}
	return 0
}

// start follows the task from here on; since is when its handle came.
func (f *follower) start(since time.Time) {
	f.core.tasks.put(f.core.taskKey(f.id), task{exchange: f.exchange})
	f.core.open.add()
	go func() {
		defer f.core.open.done()
		f.run(f.core.link.ctx, since)
	}()
}

// run polls until the task has ended, or is lost, or ctx ends; then its end is for who comes next.
func (f *follower) run(ctx context.Context, since time.Time) {
	tell := f.core.opts.Chain
	tell.Follow(ctx, f.exchange, true)
	for {
		if !sleep(ctx, f.pause) {
			break
		}
		over := f.isOver(since)
		end, ended := f.poll(ctx)
		switch {
		case ctx.Err() != nil:
		case ended:
			tell.Ended(ctx, f.exchange, end)
			return
		case over && f.ttl > 0:
			tell.Ended(ctx, f.exchange, lostTask("its time to live is over, and it had not ended"))
			return
		}
		if ctx.Err() != nil || over {
			break
		}
	}
	tell.Follow(ctx, f.exchange, false)
	f.core.logger.InfoContext(ctx, "task is not followed any more", slog.String("task", f.id))
}

func (f *follower) isOver(since time.Time) bool {
	most := f.ttl
	if most <= 0 {
		most = longestTask
	}
	return f.core.opts.Now().Sub(since) >= most
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// poll asks once. An upstream that cannot be reached is asked again.
func (f *follower) poll(ctx context.Context) (end chain.Answer, ended bool) {
	answer, err := f.ask(ctx, methodTaskGet)
	switch {
	case err != nil:
		f.core.logger.DebugContext(ctx, "task not asked about", slog.String("task", f.id), slog.Any("error", err))
		return chain.Answer{}, false
	case answer.Truncated:
		return chain.Answer{Kind: chain.Answered, Error: f.core.tooLarge(answer.Size)}, true
	case answer.Error != nil:
		return f.refused(answer.Error)
	}
	f.refusals = 0
	f.learn(answer.Result)
	switch status := unquote(splice.Get(answer.Result, "status")); status {
	case "completed", "failed":
		return f.ended(ctx, status == "failed", answer.Result)
	case "cancelled":
		return taskError("The task was cancelled", "task_cancelled", answer.Result), true
	}
	return chain.Answer{}, false
}

func (f *follower) ask(ctx context.Context, method string) (*Message, error) {
	ctx, cancel := context.WithTimeout(ctx, taskPatience)
	defer cancel()
	conn, err := f.core.link.open(ctx)
	if err != nil {
		return nil, err
	}
	params := append(appendString([]byte(`{"taskId":`), f.id), '}')
	return f.core.answerOn(ctx, conn, method, withMeta(params, f.meta))
}

// refused is what becomes of a task when the upstream answers with an error: one that does not know the task
// will not know it later.
func (f *follower) refused(object json.RawMessage) (end chain.Answer, ended bool) {
	f.refusals++
	code, err := strconv.ParseInt(string(splice.Get(object, "code")), 10, 64)
	unknown := err == nil && (code == codeInvalidParams || code == codeMethodNotFound || code == codeInvalidRequest || code == codeNotFound)
	if !unknown && f.refusals < mostRefusals {
		return chain.Answer{}, false
	}
	return lostTask("the upstream does not tell of it any more: " + shorten(unquote(splice.Get(object, "message")))), true
}

// codeNotFound is what servers say of a resource, and some of a task, that they do not have.
const codeNotFound = -32002

// ended fetches how a task ended. What failed has been answered with an error, which is the record.
func (f *follower) ended(ctx context.Context, failed bool, told json.RawMessage) (end chain.Answer, ended bool) {
	if f.modern {
		if result := splice.Get(told, "result"); result != nil {
			return chain.Answer{Kind: chain.Answered, Result: result}, true
		}
		if object := splice.Get(told, "error"); object != nil {
			return chain.Answer{Kind: chain.Answered, Error: object}, true
		}
		return f.untold(failed, told), true
	}
	answer, err := f.ask(ctx, methodTaskResult)
	switch {
	case err != nil:
		return chain.Answer{}, false
	case answer.Truncated:
		return chain.Answer{Kind: chain.Answered, Error: f.core.tooLarge(answer.Size)}, true
	case answer.Error != nil && failed:
		return chain.Answer{Kind: chain.Answered, Error: answer.Error}, true
	case answer.Error != nil:
		return f.refused(answer.Error)
	}
	return chain.Answer{Kind: chain.Answered, Result: answer.Result}, true
}

// untold is the end of a task that came without what it ended with.
func (f *follower) untold(failed bool, told json.RawMessage) chain.Answer {
	if failed {
		return taskError("The task failed", "task_failed", told)
	}
	return lostTask("it was completed, and its result was not told")
}

func taskError(text, reason string, told json.RawMessage) chain.Answer {
	if why := unquote(splice.Get(told, "statusMessage")); why != "" {
		text += ": " + shorten(why)
	}
	return chain.Answer{Kind: chain.Answered, Error: errorObject(codeInternal, text, fmt.Appendf(nil, `{"reason":%q}`, reason))}
}

func lostTask(why string) chain.Answer {
	return chain.Answer{Kind: chain.Lost, Cause: errors.New("the task was lost: " + why)}
}

// takeUp follows the tasks that were begun by processes before us, from when it is known what the upstream calls
// itself. A process that has just died counts as alive for a while, so that it looks now and then. m is a
// request, or a notification, of the agent.
func (c *core) takeUp(m *Message) {
	if !c.opts.Chain.TakesUp() || !c.knowsServer() || !c.tookUp.CompareAndSwap(false, true) {
		return
	}
	meta := requestMeta(m.Params)
	request := c.request(&Message{Method: methodToolsCall, Params: withMeta(json.RawMessage("{}"), meta), Header: m.Header})
	c.link.spawn(func(ctx context.Context) {
		for more := true; more; more = sleep(ctx, c.opts.TakeUp) {
			c.takeUpOnce(ctx, request, meta)
		}
	})
}

func (c *core) takeUpOnce(ctx context.Context, request *chain.Request, meta json.RawMessage) {
	found, err := c.opts.Chain.Unfinished(ctx, request)
	if err != nil && ctx.Err() == nil {
		c.logger.WarnContext(ctx, "unfinished tasks not looked for", slog.Any("error", err))
	}
	for _, u := range found {
		if f := c.newFollower(u.Exchange, u.Handle, meta); f != nil {
			f.start(u.At)
		}
	}
}
