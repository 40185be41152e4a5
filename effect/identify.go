package effect

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/undolog/undolog/internal/jcs"
)

// MaxHandle is how many bytes each of the strings of a call may have: tenant, principal, server, tool,
// key, run and occurrence.
const MaxHandle = 1024

// InvalidError means that a call cannot have an identity, and so can never be sent.
type InvalidError struct {
	Pointer string // RFC 6901, into the params of the call; empty: not in the params
	Reason  string
}

func (e *InvalidError) Error() string {
	if e.Pointer == "" {
		return e.Reason
	}
	return e.Pointer + ": " + e.Reason
}

// Identify returns what the call is known by under the contract of its tool: the first rule of key, run
// and window whose scope the call has, else RuleNone. A key in an argument counts as an explicit one when
// the call has no other, and is never an identity argument. Every error is an *InvalidError. Identify only
// reads, and is safe for concurrent use.
func (c *Contract) Identify(call *Call) (*Identity, error) {
	if err := checkHandles(call); err != nil {
		return nil, err
	}
	complete, err := canonicalArguments(call.Arguments)
	if err != nil {
		return nil, err
	}
	name, key, err := c.argumentKey(complete)
	if err != nil {
		return nil, err
	}
	if call.Key != "" {
		key = call.Key
	}
	arguments := c.identityArguments(complete, name)
	id := &Identity{Complete: digest(complete)}
	id.Arguments = id.Complete
	if len(arguments) != len(complete) {
		id.Arguments = digest(arguments)
	}
	id.sign(call, key, arguments)
	return id, nil
}

// sign fills in rule, scope and signatures.
func (id *Identity) sign(call *Call, key string, arguments []byte) {
	if call.Principal != "" {
		id.Window = sign(call, RuleWindow, call.Principal, arguments)
	}
	switch {
	case key != "":
		id.Rule, id.Scope = RuleKey, key
		id.Signature = sign(call, RuleKey, key, nil)
	case call.Run != "":
		id.Rule, id.Scope = RuleRun, call.Run
		id.Signature = sign(call, RuleRun, call.Run, arguments)
	case call.Principal != "":
		id.Rule, id.Scope = RuleWindow, call.Principal
		id.Signature = id.Window
	default:
		id.Rule = RuleNone
	}
}

func checkHandles(call *Call) error {
	for _, h := range [...]struct{ pointer, name, value string }{
		{"", "tenant", call.Tenant},
		{"", "principal", call.Principal},
		{"", "server name", call.Server},
		{"/name", "tool name", call.Tool},
		{"", "idempotency key", call.Key},
		{"", "run", call.Run},
		{"", "occurrence", call.Occurrence},
	} {
		if err := checkHandle(h.pointer, h.name, h.value); err != nil {
			return err
		}
	}
	return nil
}

func checkHandle(pointer, name, value string) error {
	switch {
	case len(value) > MaxHandle:
		return &InvalidError{pointer, fmt.Sprintf("%s has %d bytes, more than %d", name, len(value), MaxHandle)}
	case !utf8.ValidString(value):
		return &InvalidError{pointer, name + " is not valid UTF-8"}
	}
	return nil
}

func canonicalArguments(src []byte) ([]byte, error) {
	if len(src) == 0 {
		return []byte("{}"), nil
	}
	canonical, err := jcs.Canonical(src)
	var refused *jcs.Error
	switch {
	case errors.As(err, &refused):
		return nil, &InvalidError{"/arguments" + refused.Pointer, refused.Reason}
	case err != nil:
		return nil, &InvalidError{"/arguments", err.Error()}
	case canonical[0] != '{':
		return nil, &InvalidError{"/arguments", "must be an object"}
	}
	return canonical, nil
}

// keyArguments are the arguments that carry an idempotency key when the policy names none.
var keyArguments = []string{"idempotencyKey", "idempotency_key", "idempotency-key"}

const keyArgumentsBegin = "idempotency"

// argumentKey finds the idempotency key among the canonical arguments. The name is that of the argument
// that is no identity argument for it; both are empty when there is none.
func (c *Contract) argumentKey(arguments []byte) (name, key string, err error) {
	switch {
	case c.NoKeyArgument:
		return "", "", nil
	case c.KeyArgument != "":
		return namedKey(arguments, c.KeyArgument)
	case c.Inject.Into == InjectArgument: // the caller's own key stands where the target looks for it
		if name, key, err := namedKey(arguments, c.Inject.Name); key != "" || err != nil {
			return name, key, err
		}
	}
	if !hasString(arguments, keyArgumentsBegin) {
		return "", "", nil
	}
	for _, name := range keyArguments {
		if key, ok := text(member(arguments, name)); ok && key != "" {
			return name, key, checkHandle(argumentPointer(name), "idempotency key", key)
		}
	}
	return "", "", nil
}

// namedKey reads the argument that the policy named: a string, or nothing.
func namedKey(arguments []byte, name string) (_, key string, err error) {
	value := member(arguments, name)
	if value == nil || value.Kind() == 'n' {
		return name, "", nil
	}
	key, ok := text(value)
	if !ok {
		return "", "", &InvalidError{argumentPointer(name), "the idempotency key must be a string"}
	}
	return name, key, checkHandle(argumentPointer(name), "idempotency key", key)
}

func argumentPointer(name string) string {
	return string(jsontext.Pointer("/arguments").AppendToken(name))
}

// identityArguments returns the canonical identity arguments: the complete ones when all are identity.
func (c *Contract) identityArguments(complete []byte, keyName string) []byte {
	arguments := complete
	if keyName != "" {
		arguments = newSelection([]string{pointerTo(keyName)}).without(arguments)
	}
	if ours := c.Inject; ours.Into == InjectArgument && ours.Name != keyName {
		arguments = newSelection([]string{pointerTo(ours.Name)}).without(arguments)
	}
	switch {
	case len(c.Identity) > 0:
		return newSelection(c.Identity).only(arguments)
	case len(c.Volatile) > 0:
		return newSelection(c.Volatile).without(arguments)
	}
	return arguments
}

func pointerTo(name string) string { return string(jsontext.Pointer("").AppendToken(name)) }
