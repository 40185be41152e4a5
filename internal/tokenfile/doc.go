// Package tokenfile reads the files that say whose bearer tokens are taken: a YAML or JSON list of {token,
// tenant, principal}, which only its owner may read.
package tokenfile
