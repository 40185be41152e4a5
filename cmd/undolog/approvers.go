package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/undolog/undolog/httpapi"
	"github.com/undolog/undolog/internal/tokenfile"
)

// approvers are those who may use the page and the API: the holders of --tokens, else the user who has started
// the program.
func (f *uiFlags) approvers(cmd *cobra.Command) ([]httpapi.Approver, error) {
	if f.tokens == "" {
		key, err := ownKey(cmd)
		if err != nil {
			return nil, err
		}
		return []httpapi.Approver{{Name: localUser(), Tenant: tenantFlag(cmd), Key: key}}, nil
	}
	holders, err := tokenfile.Read(f.tokens)
	if err != nil {
		return nil, err
	}
	var approvers []httpapi.Approver
	for key, h := range holders {
		if name, isUser := strings.CutPrefix(h.Principal, "user:"); !isUser || name == "" {
			return nil, fmt.Errorf("read tokens %s: %q cannot approve: the principal of an approver is user:NAME", f.tokens, h.Principal)
		}
		if h.Tenant == "" {
			h.Tenant = tenantFlag(cmd)
		}
		approvers = append(approvers, httpapi.Approver{Name: h.Principal, Tenant: h.Tenant, Key: key})
	}
	return approvers, f.keepFromAgents(holders)
}

// keepFromAgents refuses tokens that agents have too: an agent that could approve its own calls would ask nobody.
func (f *uiFlags) keepFromAgents(approvers map[tokenfile.Key]tokenfile.Holder) error {
	for _, path := range f.agentTokens {
		agents, err := tokenfile.Read(path)
		if err != nil {
			return err
		}
		for key, agent := range agents {
			if approver, both := approvers[key]; both {
				return fmt.Errorf("the token of %s in %s is also that of %s in %s: an agent's token must not be an approver's; give each their own",
					approver.Principal, f.tokens, agent.Principal, path)
			}
		}
	}
	return nil
}

func tenantsServed(approvers []httpapi.Approver) []string {
	var tenants []string
	for _, a := range approvers {
		tenants = append(tenants, a.Tenant)
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

// ownKey is the key of the user who has started the program: of a token that is kept beside the log, so that a
// browser stays logged in when the program is started anew.
func ownKey(cmd *cobra.Command) (tokenfile.Key, error) {
	path, err := ownTokenPath(cmd)
	if err != nil {
		return tokenfile.Key{}, err
	}
	token, err := readOwnToken(path)
	if errors.Is(err, fs.ErrNotExist) {
		token, err = makeToken(path)
	}
	if err != nil {
		return tokenfile.Key{}, fmt.Errorf("keep who is logged in: %w", err)
	}
	return tokenfile.KeyOf(token), nil
}

func readOwnToken(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return "", fmt.Errorf("read %s: %w: others may read it (mode %04o); remove it, and everybody logs in anew", path, fs.ErrPermission, info.Mode().Perm())
	}
	token, err := os.ReadFile(path)
	if err == nil && len(token) < len(rand.Text()) {
		err = fmt.Errorf("read %s: it is no token; remove it, and everybody logs in anew", path)
	}
	return string(token), err
}

func ownTokenPath(cmd *cobra.Command) (string, error) {
	p, err := logPlace(cmd)
	if err != nil {
		return "", err
	}
	if !p.inPostgres() {
		return string(p) + "-ui-token", nil
	}
	dir, err := stateDir()
	return filepath.Join(dir, "undolog", "ui-token"), err
}

// makeToken writes a fresh token that only this user may read. Of two programs that do so at once, one's stays:
// it is linked into place whole.
func makeToken(path string) (string, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	temp, err := os.CreateTemp(dir, filepath.Base(path)+".new-*") // mode 0600
	if err != nil {
		return "", err
	}
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(rand.Text())
	if err := errors.Join(err, temp.Close()); err != nil {
		return "", err
	}
	if err := os.Link(temp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return readOwnToken(path)
}
