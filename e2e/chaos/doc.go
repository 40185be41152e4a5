// Package chaos holds the tests that take PostgreSQL away from under calls: stopped at random, cut off,
// gone silent, read-only, with settings that nobody wished for. Calls go the real way, through a chain with
// the effect interceptors on it, and what they did is counted in the ledger of the tool, never in the log.
package chaos
