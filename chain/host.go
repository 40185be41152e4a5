package chain

import (
	"context"

	"github.com/undolog/undolog/interceptors"
)

// Host is one server of interceptors. Its methods are called concurrently. A host is not trusted unless it
// says so by Trusted, as those do that Local makes, and Remote with Respond: it may block and change, but
// not answer in the target's place, direct the dispatch, pause it or word the requester's error.
type Host interface {
	// Name tells hosts apart in policy and logs.
	Name() string
	// List returns what the host offers, in the host's order.
	List(ctx context.Context) ([]interceptors.Descriptor, error)
	// Invoke runs one interceptor. Any error is an invocation failure of that interceptor, but for
	// RespondError and BlockError of a trusted host.
	Invoke(ctx context.Context, params *interceptors.InvokeParams) (*interceptors.Result, error)
}

// Truster is a Host that can be trusted as if it were in process. Its word is taken: who hands a Host to
// Use answers for it.
type Truster interface{ Trusted() bool }

// Watcher is a Host that learns when its interceptors have changed. Use gives it a func to call then,
// which has the host asked again before the next phase; a phase under way keeps its plan.
type Watcher interface{ Watch(changed func()) }

// Local returns a trusted host for a server in the same process. It is called directly, without
// messages, and its interceptors see Caller.Local.
func Local(name string, server *interceptors.Server) Host {
	return &localHost{name: name, server: server}
}

type localHost struct {
	name   string
	server *interceptors.Server
}

func (h *localHost) Name() string  { return h.name }
func (h *localHost) Trusted() bool { return true }

// Watch has the chain ask a server in the same process again when its interceptors change.
func (h *localHost) Watch(changed func()) { h.server.Watch(changed) }

func (h *localHost) List(context.Context) ([]interceptors.Descriptor, error) {
	return h.server.List("")
}

func (h *localHost) Invoke(ctx context.Context, params *interceptors.InvokeParams) (*interceptors.Result, error) {
	params.Caller.Local = true
	params.TimeoutMs = 0 // the chain keeps it itself, and so learns of a result that comes too late
	return h.server.Invoke(ctx, params)
}
