package effect

import (
	"fmt"
	"time"
)

// GrantKind says which calls a standing grant covers.
type GrantKind string

const (
	GrantExact GrantKind = "exact" // those with the very same complete arguments
	GrantWhere GrantKind = "where" // those for which a CEL condition holds
	GrantTool  GrantKind = "tool"  // every call of the tool
)

// Grant is a standing approval: calls that it covers need no approval of their own. It ends at its time, or
// when a person revokes it, and covers nothing of a tool whose definition has changed since.
type Grant struct {
	ID         string // UUIDv7
	Tenant     string
	Kind       GrantKind
	Server     string
	Tool       string
	Principal  string // of the caller; empty: any
	Complete   Digest // GrantExact: of the arguments
	Where      string // GrantWhere: the CEL condition
	Definition Digest // of the tool's definition when it was granted; zero: not known then
	By         string // "user:NAME"
	Reason     string
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero: never

	RevokedAt time.Time // zero: not
	RevokedBy string
}

// IsActive reports whether the grant holds at a time.
func (g *Grant) IsActive(now time.Time) bool {
	return g.RevokedAt.IsZero() && (g.ExpiresAt.IsZero() || now.Before(g.ExpiresAt))
}

// Check reports what a grant lacks, before it is recorded.
func (g *Grant) Check() error {
	switch {
	case !isUser(g.By):
		return &InvalidError{Reason: fmt.Sprintf("%q cannot grant: who does is named user:NAME", g.By)}
	case g.Server == "" || g.Tool == "":
		return &InvalidError{Reason: "a grant names a server and a tool"}
	case g.Kind == GrantExact && g.Complete.IsZero():
		return &InvalidError{Reason: "a grant of exact arguments has their digest"}
	case g.Kind == GrantWhere:
		if _, err := ParseCondition(g.Where); err != nil {
			return &InvalidError{Reason: err.Error()}
		}
		return nil
	case g.Kind == GrantExact, g.Kind == GrantTool:
		return nil
	}
	return &InvalidError{Reason: fmt.Sprintf("%q is no kind of grant", g.Kind)}
}

// covers reports whether the grant lets a call run at a time. A condition that cannot be evaluated covers
// nothing.
func (g *Grant) covers(call *Call, id *Identity, now time.Time) bool {
	switch {
	case !g.IsActive(now), g.Server != call.Server, g.Tool != call.Tool, g.By == call.Principal:
		return false
	case g.Principal != "" && g.Principal != call.Principal:
		return false
	case !g.Definition.IsZero() && g.Definition != call.Definition:
		return false
	}
	switch g.Kind {
	case GrantExact:
		return g.Complete == id.Complete
	case GrantWhere:
		condition, err := ParseCondition(g.Where)
		if err != nil {
			return false
		}
		v, err := newViewOf(call, nil) // what the server says of its tool grants nothing
		if err != nil {
			return false
		}
		holds, err := condition.holds(v)
		return err == nil && holds
	case GrantTool:
		return true
	}
	return false
}
