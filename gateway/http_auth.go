package gateway

import (
	"context"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/undolog/undolog/internal/tokenfile"
)

// tenantClaim is the member of TokenInfo.Extra that carries the tenant, a string.
const tenantClaim = "tenant"

// LoadTokens reads a YAML or JSON list of {token, tenant, principal} and returns the verifier of these
// bearer tokens. tenant may be absent; token and principal may not. The file MUST NOT be readable by
// group or others. It is read once; a change needs a restart. The verifier keeps hashes only, so that
// neither a comparison's time nor a memory dump gives a token away.
func LoadTokens(path string) (auth.TokenVerifier, error) {
	holders, err := tokenfile.Read(path)
	if err != nil {
		return nil, err
	}
	return func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		holder, ok := holders[tokenfile.KeyOf(token)]
		if !ok {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{UserID: holder.Principal, Extra: map[string]any{tenantClaim: holder.Tenant}}, nil
	}, nil
}

// caller says who sent r, as the bearer token says or, without authentication, as the options do.
func (h *HTTPHandler) caller(r *http.Request) AgentInfo {
	info := AgentInfo{Tenant: h.opts.Tenant, Principal: h.opts.Principal}
	token := auth.TokenInfoFromContext(r.Context())
	if token == nil {
		return info
	}
	info.Principal = token.UserID
	if tenant, ok := token.Extra[tenantClaim].(string); ok && tenant != "" {
		info.Tenant = tenant
	}
	return info
}
