package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
)

// outcome is one interceptor's result, read from any of the forms in use.
type outcome struct {
	Interceptor string           `json:"interceptor"`
	Type        string           `json:"type"`
	Phase       string           `json:"phase"`
	Valid       *bool            `json:"valid"`
	Severity    *string          `json:"severity"`
	Messages    []map[string]any `json:"messages"`
	Modified    *bool            `json:"modified"`
	Payload     json.RawMessage  `json:"payload"`
	Validation  *outcome         `json:"validation"`
}

func (op *operation) invoke(d *descriptor, payload json.RawMessage) (*outcome, error) {
	name, err := json.Marshal(d.Name)
	if err != nil {
		return nil, err
	}
	who := ""
	if op.agent.principal != "" && !is("tells-nobody-who") {
		who = fmt.Sprintf(`"context":{"principal":{"type":"user","id":%q}},`, op.agent.principal)
	}
	m, err := op.agent.post(*hosts, "interceptor/invoke",
		fmt.Appendf(nil, `{"name":%s,"event":%q,"phase":%q,"payload":%s,%s%s}`, name, op.event, op.phase, payload, who, meta))
	if err != nil {
		return nil, err
	}
	if m.Error != nil {
		return nil, errors.New("invocation failed: " + string(m.Error))
	}
	var o outcome
	if err := json.Unmarshal(m.Result, &o); err != nil {
		return nil, err
	}
	if o.Validation != nil && !is("flat-only") {
		o.Valid, o.Severity, o.Messages = o.Validation.Valid, o.Validation.Severity, o.Validation.Messages
	}
	return &o, o.check(d, op.phase, payload)
}

// check refuses results that are not of this invocation, or that contradict themselves.
func (o *outcome) check(d *descriptor, phase string, sent json.RawMessage) error {
	bare := o.Interceptor == "" && o.Type == "" && o.Phase == ""
	switch {
	case bare && is("refuses-bare"):
		return errors.New("bare result")
	case bare:
	case o.Interceptor != d.Name && !is("believes-interceptor"), o.Type != d.Type && !is("believes-type"), o.Phase != phase && !is("believes-phase"):
		return errors.New("a result of something else")
	}
	if o.Type == "mutation" && d.Type == "validation" && is("believes-type") {
		return nil
	}
	if d.Type == "validation" && o.Valid == nil && !is("flat-only") && !is("believes-type") {
		return errors.New("no verdict")
	}
	if d.Type == "mutation" && o.Modified != nil && !*o.Modified && !equal(sent, o.Payload) && !is("ignores-modified") {
		return errors.New("unmodified, with another payload")
	}
	return nil
}

func equal(a, b json.RawMessage) bool {
	var va, vb any
	if json.Unmarshal(a, &va) != nil || json.Unmarshal(b, &vb) != nil {
		return false
	}
	ra, errA := json.Marshal(va)
	rb, errB := json.Marshal(vb)
	return errA == nil && errB == nil && string(ra) == string(rb)
}

func (o *outcome) denies() bool {
	valid := o.Valid == nil || *o.Valid
	severity := ""
	if o.Severity != nil {
		severity = *o.Severity
	}
	switch {
	case is("believes-severity"):
		return severity == "error"
	case is("blocks-on-warnings"):
		return !valid
	case is("needs-known-severity"):
		return !valid && (severity == "" || severity == "error")
	case is("needs-severity"):
		return !valid && severity == "error"
	}
	return !valid && severity != "warn" && severity != "info"
}

func (o *outcome) reason() error {
	if len(o.Messages) == 0 {
		return errors.New("denied")
	}
	return fmt.Errorf("denied: %v", o.Messages[0]["message"])
}

// validate asks all validators at once and awaits them.
func (op *operation) validate(validators []descriptor, payload json.RawMessage) error {
	verdicts := make([]error, len(validators))
	var wg sync.WaitGroup
	for i := range validators {
		ask := func() { verdicts[i] = op.verdict(&validators[i], payload) }
		if is("stops-at-first-denial") {
			if ask(); verdicts[i] != nil {
				return verdicts[i]
			}
			continue
		}
		wg.Go(ask)
	}
	wg.Wait()
	for _, v := range verdicts {
		if v != nil {
			return v
		}
	}
	return nil
}

func (op *operation) verdict(d *descriptor, payload json.RawMessage) error {
	o, err := op.invoke(d, payload)
	alert(d, err)
	switch {
	case d.audit():
		return nil
	case err != nil && d.open():
		return nil
	case err != nil:
		return err
	case o.denies() && d.FailOpen && is("open-turns-denials"):
		return nil
	case o.denies():
		return o.reason()
	}
	return nil
}

// mutate runs the mutators in order; what fails closed takes everything back.
func (op *operation) mutate(mutators []descriptor, payload json.RawMessage) (json.RawMessage, error) {
	input, current := payload, payload
	for i := range mutators {
		d := &mutators[i]
		o, err := op.invoke(d, current)
		alert(d, err)
		switch {
		case err != nil && (d.audit() || d.open()):
			if is("open-discards") {
				current = input
			}
			continue
		case err != nil && is("not-atomic"):
			return current, nil
		case err != nil && is("goes-on-after-failure"):
			if rest, restErr := op.mutate(mutators[i+1:], current); restErr == nil {
				_ = rest
			}
			return nil, err
		case err != nil:
			return nil, err
		case d.audit() && !is("applies-audit"):
			continue
		}
		current = apply(o, current)
	}
	return current, nil
}

// alert tells the operator of a failure.
func alert(d *descriptor, err error) {
	if err != nil && !is("silent") {
		fmt.Fprintf(os.Stderr, "%s failed: %v\n", d.Name, err)
	}
}

func apply(o *outcome, current json.RawMessage) json.RawMessage {
	unmodified := o.Modified != nil && !*o.Modified
	switch {
	case o.Payload == nil || unmodified && !is("ignores-modified"):
		return current
	case is("merges"):
		return merge(current, o.Payload)
	case is("keeps-name"):
		return keepName(current, o.Payload)
	case is("doubles"):
		return throughDoubles(o.Payload)
	}
	return o.Payload
}

// merge decodes over what is there: members that were removed stay.
func merge(current, changed json.RawMessage) json.RawMessage {
	var base, over struct {
		Name      string                     `json:"name"`
		Arguments map[string]json.RawMessage `json:"arguments"`
	}
	if json.Unmarshal(current, &base) != nil || json.Unmarshal(changed, &over) != nil {
		return changed
	}
	maps.Copy(base.Arguments, over.Arguments)
	raw, err := json.Marshal(base)
	if err != nil {
		return changed
	}
	return raw
}

// keepName takes everything from changed but the tool's name.
func keepName(current, changed json.RawMessage) json.RawMessage {
	var old, out map[string]json.RawMessage
	if json.Unmarshal(current, &old) != nil || json.Unmarshal(changed, &out) != nil || old["name"] == nil {
		return changed
	}
	out["name"] = old["name"]
	raw, err := json.Marshal(out)
	if err != nil {
		return changed
	}
	return raw
}

func throughDoubles(raw json.RawMessage) json.RawMessage {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return out
}
