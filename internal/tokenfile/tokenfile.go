package tokenfile

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"github.com/goccy/go-yaml"
)

// minToken is the length below which a token can be guessed.
const minToken = 16

// maxName is the length in bytes up to which the log takes the names of tenants and principals.
const maxName = 1024

// Key is the SHA-256 of a token. It is what is kept, so that neither a comparison's time nor a memory dump
// gives a token away.
type Key [sha256.Size]byte

// KeyOf returns the key of a token.
func KeyOf(token string) Key { return sha256.Sum256([]byte(token)) }

// Holder is whose a token is.
type Holder struct {
	Tenant    string // empty where the file names none
	Principal string
}

// entry is one entry of the file.
type entry struct {
	Token     string `yaml:"token"`
	Tenant    string `yaml:"tenant"`
	Principal string `yaml:"principal"`
}

// Read returns the holders of a file's tokens. Tenant may be absent; token and principal may not. The file
// MUST NOT be readable by group or others. No error repeats anything of a token.
func Read(path string) (map[Key]Holder, error) {
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
	var entries []entry
	if err := yaml.UnmarshalWithOptions(raw, &entries, yaml.Strict()); err != nil {
		// The parser's own text quotes the file, and with it a token.
		return nil, fmt.Errorf("read tokens %s: want a list of {token, tenant, principal} in YAML or JSON", path)
	}
	holders, err := hashed(entries)
	if err != nil {
		return nil, fmt.Errorf("read tokens %s: %w", path, err)
	}
	return holders, nil
}

func hashed(entries []entry) (map[Key]Holder, error) {
	if len(entries) == 0 {
		return nil, errors.New("no tokens")
	}
	holders := make(map[Key]Holder, len(entries))
	for i, e := range entries {
		switch {
		case len(e.Token) < minToken:
			return nil, fmt.Errorf("entry %d: token is shorter than %d characters", i+1, minToken)
		case e.Principal == "":
			return nil, fmt.Errorf("entry %d: principal is missing", i+1)
		case len(e.Tenant) > maxName:
			return nil, fmt.Errorf("entry %d: tenant is longer than %d bytes", i+1, maxName)
		case len(e.Principal) > maxName:
			return nil, fmt.Errorf("entry %d: principal is longer than %d bytes", i+1, maxName)
		}
		key := KeyOf(e.Token)
		if _, taken := holders[key]; taken {
			return nil, fmt.Errorf("entry %d: token stands twice", i+1)
		}
		holders[key] = Holder{Tenant: e.Tenant, Principal: e.Principal}
	}
	return holders, nil
}
