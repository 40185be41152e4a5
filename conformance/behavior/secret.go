package behavior

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"regexp"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/undolog/undolog/interceptors"
)

// formats are shapes in which well-known services issue credentials.
var formats = []struct {
	id    string
	shape *regexp.Regexp
}{
	{"stripe_secret_live", regexp.MustCompile(`sk_live_[A-Za-z0-9]{16,}`)},
	{"stripe_pub_live", regexp.MustCompile(`pk_live_[A-Za-z0-9]{16,}`)},
	{"github_pat", regexp.MustCompile(`ghp_[A-Za-z0-9]{20,}`)},
	{"github_oauth", regexp.MustCompile(`gho_[A-Za-z0-9]{20,}`)},
	{"aws_access_key", regexp.MustCompile(`AKIA[0-9A-Z]{16}`)},
	{"slack_bot", regexp.MustCompile(`xoxb-[0-9A-Za-z-]{10,}`)},
	{"slack_refresh", regexp.MustCompile(`xoxr-[0-9A-Za-z-]{10,}`)},
}

// secretsIn returns the secrets in the strings of a JSON text, each once.
func secretsIn(payload json.RawMessage) ([]string, error) {
	seen := map[string]bool{}
	var found []string
	_, err := mapStrings(payload, func(s string) string {
		for _, f := range formats {
			for _, secret := range f.shape.FindAllString(s, -1) {
				if !seen[secret] {
					seen[secret] = true
					found = append(found, secret)
				}
			}
		}
		return s
	})
	return found, err
}

// redact puts a handle in the place of every secret, the same for the same secret.
func redact(_ context.Context, in *interceptors.Invocation) (*interceptors.Change, error) {
	clean, err := mapStrings(in.Payload, func(s string) string {
		for _, f := range formats {
			s = f.shape.ReplaceAllStringFunc(s, func(secret string) string {
				h := fnv.New32a()
				_, _ = h.Write([]byte(secret)) // a hash never fails
				return fmt.Sprintf("<secret:%s:%08x>", f.id, h.Sum32())
			})
		}
		return s
	})
	if err != nil {
		return nil, err
	}
	return &interceptors.Change{Payload: clean}, nil
}

// mapStrings rewrites every string of a JSON text, names of members included; all else keeps its bytes.
func mapStrings(raw json.RawMessage, f func(string) string) (json.RawMessage, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	out := new(bytes.Buffer)
	enc := jsontext.NewEncoder(out)
	for dec.PeekKind() != 0 {
		token, err := dec.ReadToken()
		if err != nil {
			return nil, fmt.Errorf("read payload: %w", err)
		}
		if token.Kind() == '"' {
			token = jsontext.String(f(token.String()))
		}
		if err := enc.WriteToken(token); err != nil {
			return nil, fmt.Errorf("write payload: %w", err)
		}
	}
	return bytes.TrimSpace(out.Bytes()), nil
}
