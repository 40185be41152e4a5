package main

import (
	"net/url"
	"path/filepath"
)

// commandName is how a command line is named in logs: the program. Its arguments can hold secrets.
func commandName(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return filepath.Base(args[0])
}

// withoutSecrets is a URL as it may be shown: without user, query and fragment.
func withoutSecrets(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "the upstream"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
