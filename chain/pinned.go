package chain

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/undolog/undolog/internal/splice"
)

// The members of a request's params that are the protocol's own machinery. Mutators see them and cannot
// change them: a lost requestState would break a round, a lost progress token the progress.
const (
	pinnedMetaPrefix = "io.modelcontextprotocol/"
	metaName         = "_meta"
)

func pinnedName(name string) bool {
	return name == "requestState" || name == "inputResponses"
}

func pinnedMeta(name string) bool {
	return name == "progressToken" || strings.HasPrefix(name, pinnedMetaPrefix)
}

// pinned are the members that an operation's params came with.
type pinned struct {
	members []pinnedMember
}

type pinnedMember struct {
	inMeta bool
	name   string
	value  json.RawMessage
}

// pinnedOf reads the pinned members of params; what is not an object has none.
func pinnedOf(params json.RawMessage) pinned {
	var p pinned
	if !mayPin(params) {
		return p
	}
	var meta json.RawMessage
	err := splice.Scan(params, func(name, value []byte) {
		switch {
		case string(name) == metaName:
			meta = value
		case pinnedName(string(name)):
			p.members = append(p.members, pinnedMember{name: string(name), value: value})
		}
	})
	if err != nil {
		return pinned{}
	}
	own := len(p.members)
	err = splice.Scan(meta, func(name, value []byte) {
		if pinnedMeta(string(name)) {
			p.members = append(p.members, pinnedMember{inMeta: true, name: string(name), value: value})
		}
	})
	if err != nil { // no _meta, or one that cannot hold members
		p.members = p.members[:own]
	}
	return p
}

func mayPin(params json.RawMessage) bool {
	return splice.MayHold(params, "requestState", "inputResponses", "progressToken", pinnedMetaPrefix)
}

// equal ignores the order of members.
func (p pinned) equal(q pinned) bool { return p.within(q) && q.within(p) }

func (p pinned) within(q pinned) bool {
	for _, m := range p.members {
		i := slices.IndexFunc(q.members, m.sameName)
		if i < 0 || !bytes.Equal(m.value, q.members[i].value) {
			return false
		}
	}
	return true
}

func (m pinnedMember) sameName(n pinnedMember) bool {
	return m.inMeta == n.inMeta && m.name == n.name
}

// restore returns changed with exactly the pinned members of p. changed itself is returned when it has
// them already.
func (p pinned) restore(changed json.RawMessage) (json.RawMessage, error) {
	if p.equal(pinnedOf(changed)) {
		return changed, nil
	}
	out, _, err := splice.Delete(changed, pinnedName)
	if err != nil {
		return nil, err
	}
	if out, err = p.restoreMeta(out); err != nil {
		return nil, err
	}
	for _, m := range p.members {
		if m.inMeta {
			continue
		}
		if out, err = splice.Set(out, m.value, m.name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (p pinned) restoreMeta(params json.RawMessage) (json.RawMessage, error) {
	meta := splice.Get(params, metaName)
	kept, dropped, err := splice.Delete(meta, pinnedMeta)
	changed := dropped
	if err != nil { // no _meta, or one that cannot hold members
		kept = json.RawMessage("{}")
	}
	for _, m := range p.members {
		if !m.inMeta {
			continue
		}
		if kept, err = splice.Set(kept, m.value, m.name); err != nil {
			return nil, err
		}
		changed = true
	}
	if !changed {
		return params, nil
	}
	return splice.Set(params, kept, metaName)
}
