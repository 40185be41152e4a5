//go:build peers

// Package peers_test compares what clients of others get from servers of others through the gateway with
// what they get directly: every tool, resource and prompt, JSON-equal and digit for digit. It needs Node
// and the packages of package-lock.json; "make test-peers" installs them.
//
// A driver is a program around one SDK's client. It carries a plan out (plans, one for each server) and
// keeps each message as the text that came. Two transcripts are equal when their messages are, after the
// rules in transcript_test.go have taken out what differs from run to run by itself.
package peers_test
