package effect

import "time"

// Annotations are the hints a server gives about its own tool; the zero value is what MCP takes for granted
// of a tool without any. They say nothing unless the server is trusted. That a write destroys nothing does not
// make it safe to repeat, so no tier comes of it: only conditions see it.
type Annotations struct {
	ReadOnly   bool // readOnlyHint: true
	Idempotent bool // idempotentHint: true
	Harmless   bool // destructiveHint: false
	Closed     bool // openWorldHint: false
}

// hints are the annotations as conditions see them. Of a tool that nobody vouches for MCP's defaults are true.
func (a *Annotations) hints() map[string]bool {
	if a == nil {
		a = &Annotations{}
	}
	return map[string]bool{
		"readOnlyHint": a.ReadOnly, "idempotentHint": a.Idempotent, "destructiveHint": !a.Harmless, "openWorldHint": !a.Closed,
	}
}

const (
	defaultWindow  = 10 * time.Minute
	defaultTimeout = 10 * time.Minute
	defaultLease   = 5 * time.Minute
)

// DefaultContract returns what holds for a tool when there is no policy file: the tier is that of the
// annotations of a trusted server, else irreversible, and nothing asks. ann may be nil.
func DefaultContract(ann *Annotations, trusted bool) *Contract {
	tier, source := annotatedTier(ann, trusted)
	c := tierContract(tier)
	c.Source = source
	return c
}

func annotatedTier(ann *Annotations, trusted bool) (Tier, string) {
	switch {
	case ann == nil || !trusted:
		return TierIrreversible, "default"
	case ann.ReadOnly:
		return TierRead, "annotations"
	case ann.Idempotent:
		return TierIdempotent, "annotations"
	}
	return TierIrreversible, "annotations"
}

// tierContract returns the defaults of a tier that hold with and without a policy file.
func tierContract(tier Tier) *Contract {
	c := &Contract{
		Tier:        tier,
		Window:      defaultWindow,
		Repeat:      RepeatRun,
		RepeatError: RepeatReplay,
		Lookalike:   RepeatRun,
		Annotate:    true,
		OnToolError: StateCommitted,
		Detach:      true,
		Timeout:     defaultTimeout,
		Lease:       defaultLease,
	}
	if isFree(tier) {
		c.OnToolError = StateFailed
		c.Detach = false
	}
	return c
}
