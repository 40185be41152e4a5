package chain

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/undolog/undolog/interceptors"
)

// HostPolicy is what an operator says about the interceptors of one host. It overrides what their
// authors hint.
type HostPolicy struct {
	// Overrides are keyed by interceptor name.
	Overrides map[string]Override
	// Required names the interceptors that must be there, with the type each must have. While such a one
	// is missing, of another type, or its host cannot be asked, it counts as failed wherever its
	// override's hooks say, or everywhere: fail-closed ones block. Only what is required can be made to
	// fail closed while its host is gone.
	Required map[string]interceptors.Type
	// Side is the plan of a gateway that the host's interceptors are in. Defaults to SideAgent. A chain of
	// another posture has one plan and takes no notice.
	Side Side
	// MaxPayload is the size above which a payload is not shown to the host's interceptors: each that it
	// concerns has failed then, as its failOpen says. Zero: no limit.
	MaxPayload int64
}

// Override replaces parts of what an interceptor's author declared. Zero fields leave them.
type Override struct {
	Mode     interceptors.Mode
	FailOpen *bool
	Priority *interceptors.Priority
	// TimeoutMs bounds one invocation; the host is told and the chain keeps it too. Zero: no bound.
	TimeoutMs int64
	// Config is sent with every invocation.
	Config json.RawMessage
	// Hooks narrows where the interceptor runs: on what these and the declared hooks both match.
	Hooks []interceptors.Hook
	// Nearest puts a mutator nearest the target, whatever priorities others have: last in the request phase,
	// first in the response phase.
	Nearest bool
	// Side puts the interceptor into another plan than its host's others.
	Side Side
	// Disabled takes the interceptor out.
	Disabled bool
}

func (s Side) check() error {
	if s != "" && s != SideAgent && s != SideUpstream {
		return fmt.Errorf("side %q is neither agent nor upstream", s)
	}
	return nil
}

func (p *HostPolicy) check() error {
	if err := p.Side.check(); err != nil {
		return err
	}
	if p.MaxPayload < 0 {
		return fmt.Errorf("max payload %d is negative", p.MaxPayload)
	}
	for name, typ := range p.Required {
		if typ != interceptors.TypeValidation && typ != interceptors.TypeMutation {
			return fmt.Errorf("required interceptor %q: type %q is neither validation nor mutation", name, typ)
		}
		if p.Overrides[name].Disabled {
			return fmt.Errorf("required interceptor %q is disabled", name)
		}
	}
	for name, o := range p.Overrides {
		if err := o.check(); err != nil {
			return fmt.Errorf("override of interceptor %q: %w", name, err)
		}
	}
	return nil
}

func (o *Override) check() error {
	switch o.Mode {
	case "", interceptors.ModeActive, interceptors.ModeAudit:
	default:
		return fmt.Errorf("mode %q is neither active nor audit", o.Mode)
	}
	if o.TimeoutMs < 0 {
		return fmt.Errorf("timeoutMs %d is negative", o.TimeoutMs)
	}
	if len(o.Config) > 0 && (!json.Valid(o.Config) || !isObject(o.Config)) {
		return fmt.Errorf("config is not a JSON object")
	}
	if err := o.checkHooks(); err != nil {
		return err
	}
	return o.Side.check()
}

// checkHooks refuses hooks that match nothing: the interceptor would be out without a word.
func (o *Override) checkHooks() error {
	for _, h := range o.Hooks {
		if h.Phase != interceptors.PhaseRequest && h.Phase != interceptors.PhaseResponse {
			return fmt.Errorf("hook's phase %q is neither request nor response", h.Phase)
		}
		if len(h.Events) == 0 || slices.Contains(h.Events, "") {
			return fmt.Errorf("hook of phase %s names no event", h.Phase)
		}
	}
	return nil
}

// checkNarrowing refuses hooks that reach where the interceptor's own do not. It can be told only once
// the descriptor is known; a host asked later gets the intersection.
func (o *Override) checkNarrowing(d *interceptors.Descriptor) error {
	for _, h := range o.Hooks {
		for _, event := range h.Events {
			if !d.Hooked(event, h.Phase) {
				return fmt.Errorf("override of interceptor %q: hook %s %s is wider than what it declares", d.Name, event, h.Phase)
			}
		}
	}
	return nil
}
