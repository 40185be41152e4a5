package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"runtime"

	"github.com/goccy/go-yaml"
	"github.com/modelcontextprotocol/go-sdk/auth"
)

// tenantClaim is the member of TokenInfo.Extra that carries the tenant, a string.
const tenantClaim = "tenant"

// minToken is the length below which a token can be guessed.
const minToken = 16

// tokenEntry is one entry of a token file.
type tokenEntry struct {
	Token     string `yaml:"token"`
	Tenant    string `yaml:"tenant"`
	Principal string `yaml:"principal"`
}

// LoadTokens reads a YAML or JSON list of {token, tenant, principal} and returns the verifier of these
// bearer tokens. tenant may be absent; token and principal may not. The file MUST NOT be readable by
// group or others. It is read once; a change needs a restart. The verifier keeps hashes only, so that
// neither a comparison's time nor a memory dump gives a token away.
func LoadTokens(path string) (auth.TokenVerifier, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	if loose := info.Mode().Perm() & 0o077; loose != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("read tokens %s: %w: others may read it (mode %04o); run: chmod 600 %s", path, fs.ErrPermission, info.Mode().Perm(), path)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	var entries []tokenEntry
	if err := yaml.UnmarshalWithOptions(raw, &entries, yaml.Strict()); err != nil {
		// The parser's own text quotes the file, and with it a token.
		return nil, fmt.Errorf("read tokens %s: want a list of {token, tenant, principal} in YAML or JSON", path)
	}
	callers, err := hashTokens(entries)
	if err != nil {
		return nil, fmt.Errorf("read tokens %s: %w", path, err)
	}
	return callers.verify, nil
}

// tokenTable finds a caller by the SHA-256 of its token.
type tokenTable map[[sha256.Size]byte]tokenEntry

func hashTokens(entries []tokenEntry) (tokenTable, error) {
	if len(entries) == 0 {
		return nil, errors.New("no tokens")
	}
	table := make(tokenTable, len(entries))
	for i, e := range entries {
		switch {
		case len(e.Token) < minToken:
			return nil, fmt.Errorf("entry %d: token is shorter than %d characters", i+1, minToken)
		case e.Principal == "":
			return nil, fmt.Errorf("entry %d: principal is missing", i+1)
		}
		key := sha256.Sum256([]byte(e.Token))
		if _, taken := table[key]; taken {
			return nil, fmt.Errorf("entry %d: token stands twice", i+1)
		}
		e.Token = ""
		table[key] = e
	}
	return table, nil
}

func (t tokenTable) verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	e, ok := t[sha256.Sum256([]byte(token))]
	if !ok {
		return nil, auth.ErrInvalidToken
	}
	return &auth.TokenInfo{UserID: e.Principal, Extra: map[string]any{tenantClaim: e.Tenant}}, nil
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
