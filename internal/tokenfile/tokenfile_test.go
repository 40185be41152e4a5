package tokenfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undolog/undolog/internal/tokenfile"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRead(t *testing.T) {
	t.Run("returns who holds which token", func(t *testing.T) {
		got, err := tokenfile.Read(write(t, "- {token: 0123456789abcdef, principal: user:ada, tenant: acme}\n- {token: fedcba9876543210, principal: agent:x}\n"))
		want := map[tokenfile.Key]tokenfile.Holder{
			tokenfile.KeyOf("0123456789abcdef"): {Tenant: "acme", Principal: "user:ada"},
			tokenfile.KeyOf("fedcba9876543210"): {Principal: "agent:x"},
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("holders (-want +got)\n%s%v", diff, err)
		}
	})
	t.Run("says nothing of a token that it refuses", func(t *testing.T) {
		for _, text := range []string{
			"- {token: swordfish, principal: a}", "- {token: swordfish-0123456789, principal: ''}", "- token: [swordfish-0123456789",
			"- {token: swordfish-0123456789, principal: a}\n- {token: swordfish-0123456789, principal: b}", "swordfish",
		} {
			if _, err := tokenfile.Read(write(t, text)); err == nil || strings.Contains(err.Error(), "swordfish") {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

func TestRead_namesOfAnyLengthAreNotTaken(t *testing.T) {
	entry := func(tenant, principal int) string {
		return "- {token: 0123456789abcdef, tenant: " + strings.Repeat("t", tenant) + ", principal: " + strings.Repeat("p", principal) + "}\n"
	}
	if _, err := tokenfile.Read(write(t, entry(1024, 1024))); err != nil {
		t.Errorf("names of 1024 bytes: %v", err)
	}
	for text, want := range map[string]string{
		entry(1025, 1): "entry 1: tenant is longer than 1024 bytes",
		entry(1, 1025): "entry 1: principal is longer than 1024 bytes",
	} {
		if _, err := tokenfile.Read(write(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
