package chain

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	"github.com/undolog/undolog/interceptors"
	"github.com/undolog/undolog/internal/splice"
)

// sealPrefix begins the requestState that a chain puts in the place of a target's own.
const sealPrefix = "undolog1."

// seal is what a sealed requestState holds: the event of each question, which the answers do not say, and
// the target's own state. It is bound to the requester and the operation by a MAC, not secret.
type seal struct {
	Asked map[string]string `json:"asked"`
	State json.RawMessage   `json:"state,omitempty"`
}

var (
	errSealForeign = errors.New("it was not given to this requester, or not by this chain")
	errSealMissing = errors.New("there are answers, and no state that says what was asked")
)

// sealed gives a result that asks a requestState that says what was asked. Where nobody judges answers it
// stays as it is.
func (o *operation) sealed(ctx context.Context, result json.RawMessage, asked map[string]string) json.RawMessage {
	events := make([]string, 0, len(asked))
	for _, event := range asked {
		events = append(events, event)
	}
	if !o.judged(ctx, events...) && !o.judged(ctx, serverEvents...) {
		return result
	}
	body, err := json.Marshal(seal{asked, splice.Get(result, "requestState")})
	if err != nil {
		panic(err) // strings, and JSON that was read
	}
	state := sealPrefix + encoded(body) + "." + encoded(o.mac(body))
	return replaced(result, quoted(state), "requestState")
}

// judged reports whether an interceptor runs on the client's answers to one of the events.
func (o *operation) judged(ctx context.Context, events ...string) bool {
	for _, event := range events {
		if o.chain.concerned(ctx, o.serverRequest(event, nil), interceptors.PhaseResponse) {
			return true
		}
	}
	return false
}

// unsealed gives params the target's own requestState again and returns what was asked; nil where nobody
// judges answers.
func (o *operation) unsealed(ctx context.Context, params json.RawMessage, answers bool) (json.RawMessage, map[string]string, error) {
	token, ours := strings.CutPrefix(text(splice.Get(params, "requestState")), sealPrefix)
	if !ours {
		if answers && o.judged(ctx, serverEvents...) {
			return nil, nil, errSealMissing
		}
		return params, nil, nil
	}
	s, err := o.open(token)
	if err != nil {
		return nil, nil, err
	}
	if s.State == nil {
		params, _, err = splice.Delete(params, func(name string) bool { return name == "requestState" })
	} else {
		params, err = splice.Set(params, s.State, "requestState")
	}
	return params, s.Asked, err
}

func (o *operation) open(token string) (*seal, error) {
	first, second, ok := strings.Cut(token, ".")
	body, err := base64.RawURLEncoding.DecodeString(first)
	if !ok || err != nil {
		return nil, errSealForeign
	}
	mac, err := base64.RawURLEncoding.DecodeString(second)
	if err != nil || !hmac.Equal(mac, o.mac(body)) {
		return nil, errSealForeign
	}
	s := new(seal)
	if err := json.Unmarshal(body, s); err != nil {
		return nil, errSealForeign
	}
	if s.Asked == nil {
		s.Asked = map[string]string{}
	}
	return s, nil
}

// mac binds a seal to who got it and for which operation.
func (o *operation) mac(body []byte) []byte {
	req := o.exchange.Request
	principal := ""
	if req.Principal != nil {
		principal = req.Principal.Type + "\x00" + req.Principal.ID
	}
	scope, err := json.Marshal([]string{req.Caller.Tenant, req.Caller.Subject, principal, req.Event})
	if err != nil {
		panic(err) // strings
	}
	h := hmac.New(sha256.New, o.chain.opts.StateKey)
	h.Write(scope)
	h.Write(body)
	return h.Sum(nil)
}

func encoded(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
